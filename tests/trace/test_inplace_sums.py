from __future__ import annotations

from oomph.trace._inplace_sums import merge_sums


def test_sum_is_placed_in_the_addend_that_is_freed_with_it() -> None:
    merged = merge_sums([1, 2, 3, -1, -2, 4, -3, -4], {2: (0, 1)})
    assert merged.events == (1, 2, -2, 4, -1, -4)
    assert merged.hosts == {2: 0}


def test_addend_that_stays_alive_is_not_reused() -> None:
    held = merge_sums([1, 2, 3, -2, 4, -1, -3, -4], {2: (0, 1)})
    assert held.events == (1, 2, 4, -1, -2, -4)
    both = [1, 2, 3, 4, -1, -2, -3, -4]
    assert merge_sums(both, {2: (0, 1)}).events == tuple(both)


def test_sums_of_sums_share_one_storage() -> None:
    merged = merge_sums([1, 2, 3, -1, -2, 4, 5, -3, -4, -5], {2: (0, 1), 4: (2, 3)})
    assert merged.events == (1, 2, -2, 4, -4, -1)
    assert merged.hosts == {2: 0, 4: 0}


def test_positions_map_old_events_to_new_ones() -> None:
    merged = merge_sums([1, 2, 3, -1, -2, -3], {2: (0, 1)})
    assert merged.events == (1, 2, -2, -1)
    assert merged.positions == (0, 1, 2, 2, 2, 3, 4)
