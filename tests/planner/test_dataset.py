from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import CannotFit, UsageError
from oomph.units import GIB, MIB

JOB = oomph.Job(
    model=lambda: nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 64)),
    batch=lambda count, size: (torch.zeros(count, 8, dtype=torch.long), torch.zeros(count, 8, 64)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
)
SETTINGS = oomph.Settings(batch=4)


class Sequences:
    """Sequences of 1 to 50 tokens; the longest is in the middle."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Tensor:
        if not 0 <= index < 50:
            raise IndexError
        return torch.zeros(50 - abs(index - 25), dtype=torch.long)


def padded(samples: list[Tensor]) -> tuple[Tensor, Tensor]:
    tokens = nn.utils.rnn.pad_sequence(samples, batch_first=True)
    return tokens, torch.zeros(*tokens.shape, 64)


def plan(**options: Any) -> oomph.Plan:
    return oomph.plan(JOB, SETTINGS, "H200", **{"dataset": Sequences(), "collate": padded, **options})


def test_plan_holds_for_the_longest_samples() -> None:
    tokens = torch.zeros(4, 50, dtype=torch.long)
    longest = replace(JOB, batch=lambda *_: padded(list(tokens)))
    expected = oomph.predict(longest, SETTINGS, "H200")
    assert plan().requested_need.allocated.value == pytest.approx(expected.allocated.value, rel=0.01)
    assert plan().requested_need.allocated.value > oomph.predict(JOB, SETTINGS, "H200").allocated.value


def test_loader_fits_beside_the_training_process() -> None:
    loader = plan(host_budget="8GiB").loader
    assert loader is not None
    assert loader.memory + loader.training <= 8 * GIB
    assert loader.dataloader_kwargs["pin_memory"] is True
    alone = plan(host_budget=loader.training + 8 * MIB).loader
    assert alone is not None
    assert alone.workers == 0
    assert alone.prefetch is None
    assert "budget, beside" in alone.why
    assert plan(dataset=None, collate=None).loader is None


def test_plan_says_if_not_all_samples_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomph.data._profile._MEASURING_SECONDS", 0.0)
    partly = plan(dataset=[torch.zeros(8, dtype=torch.long)] * 200).planned_need
    assert any("were measured in five seconds" in assumption for assumption in partly.assumptions)
    assert not any("were measured" in assumption for assumption in plan().planned_need.assumptions)


def test_host_without_memory_for_training() -> None:
    with pytest.raises(CannotFit, match=r"training process may need .* and there are 500 MiB \(budget\)"):
        plan(host_budget="500MiB")


class Stream:
    """A dataset that can only be iterated."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter(Sequences()[index] for index in range(50))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": Stream()}, "the dataset can only be iterated"),
        ({"collate": None}, r"largest samples can't be collated .*pass your collate_fn"),
        ({"allow": ("size",)}, "the dataset decides the size"),
        ({"dataset": None}, "collate has no effect without a dataset"),
        ({"dataset": None, "collate": None, "host_budget": "1GiB"}, "host_budget has no effect without a dataset"),
    ],
)
def test_contradictory_wishes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        plan(**options)


def test_plan_with_a_loader_survives_a_file(tmp_path: Any) -> None:
    made = plan()
    made.save(tmp_path / "plan.json")
    assert oomph.Plan.load(tmp_path / "plan.json") == made
