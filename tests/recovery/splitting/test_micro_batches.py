"""Micro-batches: how batches are split, and how model, loss and forward are called."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError

from ..faults import FaultAt, in_split_check
from ..nets import guard_of, plain_batch, plain_guard, plain_net


def test_a_plain_step_reaches_the_model_through_few_frames() -> None:
    """Users read these frames in each traceback of their model."""
    frames: list[str] = []

    class TracingNet(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            frames.extend(frame.function for frame in inspect.stack() if frame.filename.startswith(package))
            return super().forward(x)

    package = str(Path(oomph.__file__).parent)
    guard_of(TracingNet(4, 2)).step(plain_batch())
    between = frames[: frames.index("step")]
    assert len(between) <= 8, between


def test_scalars_belong_to_every_micro_batch() -> None:
    scales: list[int] = []

    def forward(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        if not in_split_check():
            scales.append(int(batch[2]))
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    guard = plain_guard(micro_batch=4)
    assert guard.step((*plain_batch(), torch.tensor(7)), forward=forward).micro_batches == 2
    assert scales == [7, 7]


def test_a_forward_may_empty_its_batch() -> None:
    """A retry needs the batch again, so the forward gets a copy of the list."""

    def forward(model: nn.Module, batch: list[Tensor]) -> Tensor:
        targets = batch.pop()
        return nn.functional.mse_loss(model(batch.pop()), targets)

    guard, batch = plain_guard(), list(plain_batch())
    with FaultAt([5]):
        assert guard.step(batch, forward=forward).retries == 1
    assert len(batch) == 2


def split_images(batch: Any, micro_batches: int) -> list[Any]:
    """Split images by rows, and targets by the image that their first column names."""
    images, targets = batch
    bounds = [len(images) * index // micro_batches for index in range(micro_batches + 1)]
    return [
        (images[start:end], targets[(targets[:, 0] >= start) & (targets[:, 0] < end)])
        for start, end in itertools.pairwise(bounds)
    ]


def test_ragged_batches_need_a_split_function() -> None:
    batch = torch.randn(4, 4), torch.randn(11, 6)

    def forward(model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0]).pow(2).mean() + 0 * batch[1].sum()

    with pytest.raises(UsageError, match=r"4 and 11 rows.*split="):
        plain_guard().step(batch, forward=forward)
    with pytest.raises(UsageError, match="samples=, a function of the batch"):
        plain_guard(split=split_images, micro_batch=2).step(batch, forward=forward)
    guard = plain_guard(split=split_images, samples=lambda batch: len(batch[0]), micro_batch=2)
    assert guard.step(batch, forward=forward).micro_batches == 2
    with pytest.raises(UsageError, match="split returned 1 micro-batches instead of 2"):
        plain_guard(split=lambda batch, _: [batch], samples=lambda _: 4, micro_batch=2).step(batch, forward=forward)


def test_a_guard_needs_a_loss_from_somewhere() -> None:
    with pytest.raises(UsageError, match=r"the model returned a Tensor without a loss; give the guard loss=.*forward="):
        plain_guard(None).step(plain_batch()[0])
    with pytest.raises(UsageError, match="the batch is a Tensor, not a pair of inputs and targets"):
        plain_guard().step(plain_batch()[0])


def test_empty_batches_are_rejected() -> None:
    with pytest.raises(UsageError, match="the batch has no samples; skip empty batches"):
        plain_guard(micro_batch=2).step((torch.randn(0, 4), torch.randn(0, 2)))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, first: Tensor, second: Tensor | None = None) -> Tensor:
        return self.layer(first if second is None else first + second)


def test_inputs_are_passed_by_name_by_position_or_as_a_single_value() -> None:
    inputs, targets = plain_batch()
    losses = []
    for arguments in (inputs + inputs, (inputs, inputs), [inputs, inputs], {"first": inputs, "second": inputs}):
        torch.manual_seed(0)
        losses.append(float(guard_of(TwoInputs(), micro_batch=3).step((arguments, targets)).loss))
    assert losses == pytest.approx([losses[0]] * 4)


def test_forward_and_loss_run_in_autocast() -> None:
    dtypes: list[torch.dtype] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if not in_split_check():
            dtypes.append(outputs.dtype)
        return nn.functional.mse_loss(outputs.float(), targets)

    guard = plain_guard(loss, precision="amp-bf16")
    guard.step(plain_batch())
    guard.evaluate([plain_batch()], lambda model, batch: dtypes.append(model(batch[0]).dtype))
    assert dtypes == [torch.bfloat16] * 2


def test_float16_autocast_gets_a_scaler() -> None:
    guard = plain_guard(precision="amp-fp16")
    assert isinstance(guard.scaler, torch.amp.GradScaler)
    assert guard.step(plain_batch()).updated
    scaler = torch.amp.GradScaler("cpu")
    assert plain_guard(precision="amp-fp16", scaler=scaler).scaler is scaler


def test_a_forward_of_a_single_step_replaces_the_loss() -> None:
    guard = guard_of(plain_net())
    assert float(guard.step(plain_batch(), forward=lambda model, batch: 0 * model(batch[0]).sum()).loss) == 0
    assert float(guard.step(plain_batch()).loss) > 0
