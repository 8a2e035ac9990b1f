"""Sums that live in one of their addends."""

from __future__ import annotations

from oomph.trace._sums import merge


def test_a_sum_lives_in_the_addend_that_dies_with_it() -> None:
    merged = merge([1, 2, 3, -1, -2, 4, -3, -4], {2: (0, 1)})
    assert merged.events == (1, 2, -2, 4, -1, -4)
    assert merged.hosts == {2: 0}


def test_an_addend_that_somebody_holds_is_left_alone() -> None:
    held = merge([1, 2, 3, -2, 4, -1, -3, -4], {2: (0, 1)})
    assert held.events == (1, 2, 4, -1, -2, -4)
    both = [1, 2, 3, 4, -1, -2, -3, -4]
    assert merge(both, {2: (0, 1)}).events == tuple(both)


def test_sums_of_sums_stay_where_the_first_one_was() -> None:
    merged = merge([1, 2, 3, -1, -2, 4, 5, -3, -4, -5], {2: (0, 1), 4: (2, 3)})
    assert merged.events == (1, 2, -2, 4, -4, -1)
    assert merged.hosts == {2: 0, 4: 0}


def test_places_follow_the_events() -> None:
    merged = merge([1, 2, 3, -1, -2, -3], {2: (0, 1)})
    assert merged.events == (1, 2, -2, -1)
    assert merged.places == (0, 1, 2, 2, 2, 3, 4)
