"""Where updates begin: at what the last ones needed, and now and then at less."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oomph.recovery._footing import Footing


def run(footing: Footing, needs: list[int]) -> list[int]:
    """Where each update begins, of some that need so much."""
    begun = []
    for need in needs:
        begun.append(footing.first)
        footing.settle(max(need, footing.first))
    return begun


def test_one_that_needed_more_changes_nothing() -> None:
    assert run(Footing(3), [0, 2, 0, 1, 0, 0]) == [0] * 6


def test_after_two_in_a_row_the_next_begins_there() -> None:
    assert run(Footing(3), [2, 2, 2, 2]) == [0, 0, 2, 2]
    assert run(Footing(3), [1, 2, 2, 2]) == [0, 0, 1, 2]


def test_less_is_tried_again_and_twice_as_late_if_it_was_too_little() -> None:
    begun = run(Footing(3), [2] * 20)
    assert begun == [0, 0, 2, 2, 2, 1, *[2] * 6, 1, *[2] * 7]


def test_it_goes_down_step_by_step_when_less_is_enough() -> None:
    begun = run(Footing(2), [2, 2, *[0] * 10])
    assert begun == [0, 0, 2, 2, 1, 1, 1, 0, 0, 0, 0, 0]


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 5))
def test_it_never_begins_above_what_both_of_the_last_two_took(needs: list[int], calm: int) -> None:
    footing, taken = Footing(calm), [0, 0]
    for need in needs:
        assert 0 <= footing.first <= min(taken[-2:])
        assert footing.level - footing.first in {0, 1}
        assert footing.is_calm == (taken[-1] == footing.level == 0)
        taken.append(max(need, footing.first))
        footing.settle(taken[-1])


@given(st.lists(st.integers(0, 2), max_size=20), st.integers(1, 5))
def test_it_finds_back_to_nothing(needs: list[int], calm: int) -> None:
    footing = Footing(calm)
    run(footing, [*needs, *[0] * (2 * calm * 2 ** len(needs) if len(needs) < 6 else 4000)])
    assert footing.first == footing.level == 0


@given(st.lists(st.integers(0, 2), max_size=20), st.lists(st.integers(0, 2), max_size=20), st.integers(1, 5))
def test_another_one_goes_on_from_its_state(before: list[int], after: list[int], calm: int) -> None:
    footing, other = Footing(calm), Footing(calm)
    run(footing, before)
    other.load_state_dict(footing.state_dict())
    assert other.is_calm == footing.is_calm
    assert run(other, after) == run(footing, after)
