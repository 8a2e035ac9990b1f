from __future__ import annotations

import inspect
import pickle

import pytest

from oomph import errors

TREE = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.OomphError)]


@pytest.mark.parametrize("cls", TREE)
def test_every_error_is_documented(cls: type[errors.OomphError]) -> None:
    assert cls.__name__ in (errors.__doc__ or "")
    assert cls.__doc__


@pytest.mark.parametrize("cls", TREE)
def test_error_is_one_sentence_and_survives_pickling(cls: type[errors.OomphError]) -> None:
    error = cls("it broke", "fix it")
    assert str(error) == "it broke; fix it."
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert (type(copy), copy.why, copy.fix) == (cls, "it broke", "fix it")


def test_exit_codes_follow_the_tree() -> None:
    codes = {cls.__name__: cls.exit_code for cls in TREE}
    assert codes.pop("OomphError") == 1
    assert codes.pop("RankLost") == 1
    assert codes.pop("CannotFit") == codes.pop("RetriesExhausted") == 3
    assert set(codes.values()) == {2}


def test_nearest_names_survive_pickling() -> None:
    error = errors.UnknownName("no p8", "try another", ("p5", "p4d"))
    assert pickle.loads(pickle.dumps(error)).nearest == ("p5", "p4d")  # noqa: S301


def test_echoed_values_are_shortened() -> None:
    assert errors.shorten("x" * 60) == "x" * 60
    assert errors.shorten("x" * 61) == "x" * 59 + "…"
    assert errors.quote("x" * 1000) == repr("x" * 59 + "…")
    assert len(errors.quote([["nested"] * 100] * 100)) == 60
    assert errors.quote(None) == "None"


def test_foreign_exceptions_are_described_on_one_line() -> None:
    assert errors.describe(ValueError("two\n  lines")) == "ValueError: two lines"
    assert errors.describe(ValueError()) == "ValueError"
    assert len(errors.describe(ValueError("x" * 1000))) == 200
