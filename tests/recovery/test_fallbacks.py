"""Fallbacks under a cap of live bytes: micro-batches, checkpointed blocks, and with permission precision and size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import RetriesExhausted

from .faults import ByteCap, FaultIn
from .nets import guard_of, plain_batch, plain_guard


class Block(nn.Module):
    """Two layers with activations; the unit of checkpointing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def step_under(cap: int, net: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[oomph.StepReport, ByteCap]:
    guard = guard_of(net)
    with ByteCap(cap) as mode:
        return guard.step(batch), mode


@pytest.mark.medium
def test_a_batch_is_split_until_it_fits() -> None:
    def run(cap: int) -> tuple[oomph.StepReport, ByteCap]:
        torch.manual_seed(0)
        net = nn.Sequential(*[Block(64) for _ in range(6)])
        return step_under(cap, net, (torch.randn(512, 64), torch.randn(512, 64)))

    whole, mode = run(1 << 40)
    assert whole.micro_batches == 1
    peak = mode.peak
    split, mode = run(int(peak * 0.8))
    assert split.micro_batches > 1
    assert mode.raised > 0
    assert mode.peak <= peak * 0.8
    torch.testing.assert_close(split.loss, whole.loss)
    with pytest.raises(RetriesExhausted, match="doesn't fit"):
        run(int(peak * 0.1))


def test_blocks_are_checkpointed_if_single_samples_do_not_fit() -> None:
    def run(cap: int) -> oomph.StepReport:
        torch.manual_seed(0)
        net = nn.Sequential(*[Block(8) for _ in range(12)])
        return step_under(cap, net, (torch.randn(2, 2048, 8), torch.randn(2, 2048, 8)))[0]

    names = [fallback.name for fallback in run(1_300_000).fallbacks]
    assert names[:2] == ["micro_batch", "collect_garbage"]
    assert set(names[2:]) == {"checkpoint"}
    with pytest.raises(RetriesExhausted):
        run(300_000)


class SizedBlock(nn.Module):
    """Keeps a number of values for each input value."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.tanh, self.down = nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.tanh(self.up(x)))


def test_the_largest_blocks_are_checkpointed_first_and_no_more_than_needed() -> None:
    torch.manual_seed(0)
    blocks = [SizedBlock(width) for width in (8, 4, 12, 4, 16, 8, 4, 8)]
    guard = guard_of(nn.Sequential(*blocks), cooldown_steps=2)
    batch = torch.randn(1, 4096, 1), torch.randn(1, 4096, 1)

    def checkpointed() -> list[int]:
        return [block.up.out_features for block in blocks if "forward" in vars(block)]

    with ByteCap(1 << 40) as mode:
        guard.step(batch)
    with ByteCap(int(0.85 * mode.peak)):
        report = guard.step(batch)
    assert [fallback.name for fallback in report.fallbacks] == ["collect_garbage", "checkpoint", "checkpoint"]
    assert checkpointed() == [12, 16]
    for _ in range(3):
        guard.step(batch)
    assert len(checkpointed()) == 1
    for _ in range(6):
        guard.step(batch)
    assert checkpointed() == []


def test_a_resumed_run_checkpoints_as_many_blocks() -> None:
    def build() -> Any:
        torch.manual_seed(0)
        return guard_of(nn.Sequential(*[SizedBlock(width) for width in (8, 4, 12, 4)]))

    guard, resumed = build(), build()
    guard._checkpointing.measure()
    for _ in range(2):
        guard.retry_policy._apply_last()
    resumed.load_state_dict(guard.state_dict())
    assert sum("forward" in vars(block) for block in resumed.model) == 2


def test_precision_and_size_are_lowered_last_and_only_with_permission() -> None:
    guard = plain_guard(allow=("precision", "size"), resize=lambda batch: batch)
    with pytest.raises(RetriesExhausted), FaultIn("addmm"):
        guard.step(plain_batch(2))
    mode = guard._runner.mode
    assert (mode.precision, mode.resizes) == ("amp-bf16", 3)
    forbidden = plain_guard()
    with pytest.raises(RetriesExhausted), FaultIn("addmm"):
        forbidden.step(plain_batch(2))
    mode = forbidden._runner.mode
    assert (mode.precision, mode.resizes) == (None, 0)


def test_lower_precision_and_size_are_taken_back_after_quiet_steps() -> None:
    sizes: list[int] = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        sizes.append(batch[0].shape[1])
        outputs = model(batch[0][:, :1].expand(-1, 4))
        if batch[0].shape[1] > 2:
            raise MemoryError
        return nn.functional.mse_loss(outputs, batch[1])

    def halve(batch: Any) -> Any:
        return batch[0][:, ::2], batch[1]

    guard = plain_guard(forward=forward, allow=("precision", "size"), resize=halve, cooldown_steps=2)
    report = guard.step(plain_batch(1))
    assert [fallback.name for fallback in report.fallbacks] == ["collect_garbage", "precision", "size"]
    assert sizes == [4, 4, 4, 2]
    guard.step(plain_batch(1))
    assert guard._runner.mode.resizes == 0, "the full size is tried after two quiet steps"
    assert [fallback.name for fallback in guard.step(plain_batch(1)).fallbacks] == ["collect_garbage", "size"]
    assert guard.retry_policy.wait_steps == 4
    for _ in range(4):
        guard.step(plain_batch(1), forward=lambda model, batch: model(batch[0][:, :1].expand(-1, 4)).mean())
    assert guard._runner.mode.precision == "amp-bf16"
