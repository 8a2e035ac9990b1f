from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import oomph
from oomph.errors import CannotFit
from oomph.ledger import Origin, Prediction, Range
from oomph.planner import largest_batch, plan
from oomph.settings import Settings
from oomph.units import MIB

JOB = oomph.Job(
    model=lambda: nn.Linear(4, 4),
    batch=lambda n, _: (torch.randn(n, 4), torch.randn(n, 4)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
)
REAL = oomph.predict(JOB, Settings(batch=1), "H200")


def needing(fixed: int, each: int) -> object:
    """A stand-in for predictions of a job whose need grows in a straight line with the pieces."""
    asked: list[Settings] = []

    def predict(wanted: Settings) -> Prediction:
        asked.append(wanted)
        need = float(fixed + each * max(wanted.pieces))
        return dataclasses.replace(REAL, device=Range(need, need, need, Origin.TRACED))

    predict.asked = asked  # type: ignore[attr-defined]
    return predict


def test_what_fits_stays_as_asked() -> None:
    asked = Settings(batch=64)
    made = plan(asked, 1000 * MIB, needing(100 * MIB, 10 * MIB))  # type: ignore[arg-type]
    assert made.settings == asked
    assert made.moves == ()


def test_a_batch_that_does_not_fit_is_split_into_even_pieces() -> None:
    made = plan(Settings(batch=10), 150 * MIB, needing(100 * MIB, 10 * MIB))  # type: ignore[arg-type]
    assert made.settings.batch == 10
    assert made.settings.pieces == (5, 5)
    assert "2 pieces of at most 5" in made.moves[0].what
    assert made.after.device.high <= 150 * MIB < made.before.device.high


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 200), st.integers(0, 500), st.integers(1, 50), st.integers(1, 3000))
def test_the_plan_fits_and_no_larger_even_split_would(batch: int, fixed: int, each: int, budget: int) -> None:
    predict = needing(fixed * MIB, each * MIB)
    try:
        made = plan(Settings(batch=batch), budget * MIB, predict)  # type: ignore[arg-type]
    except CannotFit:
        assert fixed + each > budget
        return
    assert made.after.device.high <= budget * MIB
    assert sum(made.settings.pieces) == batch
    pieces = len(made.settings.pieces)
    if pieces > 1:
        larger = -(-batch // (pieces - 1))
        assert fixed + each * larger > budget
    assert len(predict.asked) <= 8  # type: ignore[attr-defined]


def test_not_even_one_sample_says_what_it_would_need() -> None:
    with pytest.raises(CannotFit, match="pieces of 1 need 110 MiB, and the budget is 105 MiB"):
        plan(Settings(batch=4), 105 * MIB, needing(100 * MIB, 10 * MIB))  # type: ignore[arg-type]


def test_pieces_are_never_smaller_than_they_may_be() -> None:
    predict = needing(100 * MIB, 10 * MIB)
    assert plan(Settings(batch=8), 125 * MIB, predict, least=2).settings.pieces == (2, 2, 2, 2)  # type: ignore[arg-type]
    with pytest.raises(CannotFit, match="pieces of 2"):
        plan(Settings(batch=8), 115 * MIB, predict, least=2)  # type: ignore[arg-type]


def test_the_largest_batch_is_found() -> None:
    found = largest_batch(Settings(batch=1), 500 * MIB, needing(100 * MIB, 10 * MIB))  # type: ignore[arg-type]
    assert found.batch == 40
