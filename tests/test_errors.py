from __future__ import annotations

import inspect
import pickle

import pytest

from oomph import errors

TREE = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.OomphError)]


@pytest.mark.parametrize("cls", TREE)
def test_every_error_is_in_the_drawn_tree_and_says_when_it_happens(cls: type[errors.OomphError]) -> None:
    assert cls.__name__ in (errors.__doc__ or "")
    assert cls.__doc__


@pytest.mark.parametrize("cls", TREE)
def test_an_error_is_one_sentence_and_survives_a_process_boundary(cls: type[errors.OomphError]) -> None:
    error = cls("it broke", "mend it")
    assert str(error) == "it broke; mend it."
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert (type(again), again.why, again.fix) == (cls, "it broke", "mend it")


def test_exit_codes_follow_the_tree() -> None:
    codes = {cls.__name__: cls.exit_code for cls in TREE}
    assert codes.pop("OomphError") == 1
    assert codes.pop("RankLost") == 1
    assert codes.pop("CannotFit") == codes.pop("RetriesExhausted") == 3
    assert set(codes.values()) == {2}


def test_names_that_were_near_travel_with_the_error() -> None:
    error = errors.UnknownName("no p8", "try another", ("p5", "p4d"))
    assert pickle.loads(pickle.dumps(error)).nearest == ("p5", "p4d")  # noqa: S301
