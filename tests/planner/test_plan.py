from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import oomph
from oomph.errors import CannotFit, UsageError
from oomph.planner import AllowedChanges, largest_batch, plan, read_allowed
from oomph.prediction import Estimate, Origin, Prediction
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
        need = float(fixed + each * max(wanted.micro_batch_sizes))
        return dataclasses.replace(REAL, device=Estimate(need, need, need, Origin.TRACED))

    predict.asked = asked  # type: ignore[attr-defined]
    return predict


def test_what_fits_stays_as_asked() -> None:
    asked = Settings(batch=64)
    made = plan(asked, 1000 * MIB, needing(100 * MIB, 10 * MIB))  # type: ignore[arg-type]
    assert made.settings == asked
    assert made.changes == ()


def test_a_batch_that_does_not_fit_is_split_into_even_pieces() -> None:
    made = plan(Settings(batch=10), 150 * MIB, needing(100 * MIB, 10 * MIB))  # type: ignore[arg-type]
    assert made.settings.batch == 10
    assert made.settings.micro_batch_sizes == (5, 5)
    assert "2 pieces of at most 5" in made.changes[0].what
    assert made.planned_need.device.high <= 150 * MIB < made.requested_need.device.high


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 200), st.integers(0, 500), st.integers(1, 50), st.integers(1, 3000))
def test_the_plan_fits_and_no_larger_even_split_would(batch: int, fixed: int, each: int, budget: int) -> None:
    predict = needing(fixed * MIB, each * MIB)
    try:
        made = plan(Settings(batch=batch), budget * MIB, predict)  # type: ignore[arg-type]
    except CannotFit:
        assert fixed + each > budget
        return
    assert made.planned_need.device.high <= budget * MIB
    assert sum(made.settings.micro_batch_sizes) == batch
    pieces = len(made.settings.micro_batch_sizes)
    if pieces > 1:
        larger = -(-batch // (pieces - 1))
        assert fixed + each * larger > budget
    assert len(predict.asked) <= 8  # type: ignore[attr-defined]


def test_not_even_one_sample_says_what_it_would_need() -> None:
    with pytest.raises(CannotFit, match="pieces of 1 need up to 110 MiB, and the budget is 105 MiB"):
        plan(Settings(batch=4), 105 * MIB, needing(100 * MIB, 10 * MIB))  # type: ignore[arg-type]


def test_pieces_are_never_smaller_than_they_may_be() -> None:
    predict = needing(100 * MIB, 10 * MIB)
    assert plan(Settings(batch=8), 125 * MIB, predict, least=2).settings.micro_batch_sizes == (2, 2, 2, 2)  # type: ignore[arg-type]
    with pytest.raises(CannotFit, match="pieces of 2"):
        plan(Settings(batch=8), 115 * MIB, predict, least=2)  # type: ignore[arg-type]


def test_the_largest_batch_is_found() -> None:
    found = largest_batch(Settings(batch=1), 500 * MIB, needing(100 * MIB, 10 * MIB))  # type: ignore[arg-type]
    assert found.batch == 40


def shrinking(wanted: Settings) -> Prediction:
    """Samples take 100 MiB at 640 in fp32, 40 % of that with blocks run again, half of it in low precision."""
    assert isinstance(wanted.size, int)
    share = (0.4 if wanted.checkpointing == "blocks" else 1.0) * (0.5 if wanted.precision == "amp-bf16" else 1.0)
    need = (50 + 100 * share * (wanted.size / 640) ** 2 * max(wanted.micro_batch_sizes)) * MIB
    return dataclasses.replace(REAL, device=Estimate(need, need, need, Origin.TRACED))


ASKED = Settings(batch=8, size=640)
SIDES = tuple(range(608, 288, -32))


def leeway(*allowed: str) -> AllowedChanges:
    return AllowedChanges(checkpointing=True, precision="amp-bf16", sides=SIDES, allowed=allowed)


def test_pieces_come_before_anything_else() -> None:
    made = plan(ASKED, 160 * MIB, shrinking, leeway=leeway("precision", "size"))
    assert made.settings == dataclasses.replace(ASKED, micro_batch=1)
    assert len(made.changes) == 1


def test_blocks_run_again_where_pieces_alone_do_not_fit() -> None:
    made = plan(ASKED, 140 * MIB, shrinking, leeway=leeway("precision", "size"))
    assert made.settings == dataclasses.replace(ASKED, checkpointing="blocks", micro_batch=2)
    assert [move.cost.split(";")[0] for move in made.changes] == [
        "About a third more time",
        "BatchNorm sees the pieces",
    ]
    assert "as asked it may need up to 850 MiB, and there are 140 MiB" in made.changes[0].why


def test_results_change_only_with_a_yes_and_no_more_than_needed() -> None:
    with pytest.raises(CannotFit) as refused:
        plan(ASKED, 85 * MIB, shrinking, leeway=leeway())
    assert refused.value.why == "pieces of 1 need up to 90 MiB, and the budget is 85 MiB"
    assert refused.value.fix.startswith("--allow precision would make it fit (amp-bf16 at 640, up to 70 MiB); or")
    made = plan(ASKED, 85 * MIB, shrinking, leeway=leeway("precision"))
    assert made.settings == dataclasses.replace(ASKED, checkpointing="blocks", precision="amp-bf16", micro_batch=1)
    assert made.changes[1].what == "it is computed in amp-bf16 and not in fp32"
    smaller = plan(ASKED, 85 * MIB, shrinking, leeway=leeway("size"))
    assert smaller.settings.size == 576  # the largest whose pieces fit: 50 + 40 * 0.81
    assert smaller.settings.precision == "fp32"
    assert "images are 576 and not 640" in smaller.changes[1].what


def test_a_lower_precision_may_spare_the_blocks() -> None:
    made = plan(ASKED, 100 * MIB, shrinking, leeway=AllowedChanges(precision="amp-bf16", allowed=("precision",)))
    assert made.settings == dataclasses.replace(ASKED, precision="amp-bf16", micro_batch=1)


def test_what_no_yes_can_help_says_what_is_left() -> None:
    with pytest.raises(CannotFit) as refused:
        plan(ASKED, 51 * MIB, shrinking, leeway=leeway())
    assert refused.value.fix == "take a smaller network, or give it more memory"
    with pytest.raises(CannotFit, match="--allow precision,size would make it fit"):
        plan(ASKED, 56 * MIB, shrinking, leeway=leeway())
    with pytest.raises(CannotFit, match="need up to 55 MiB"):
        plan(ASKED, 52 * MIB, shrinking, leeway=leeway("precision", "size"))


def test_what_can_be_allowed_is_read() -> None:
    assert read_allowed("precision, size") == ("precision", "size")
    with pytest.raises(UsageError, match="'optimizer' can't be allowed; it must be precision or size"):
        read_allowed("optimizer")
