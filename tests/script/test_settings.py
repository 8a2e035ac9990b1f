from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from oomph import Job, Settings
from oomph.errors import UsageError
from oomph.machine import find_target
from oomph.prediction import predict, predict_trace, trace_device
from oomph.script import ScriptRun, capture_script
from oomph.trace import EmulatedDevice

SCRIPT = Path(__file__).parent / "scripts" / "plannable.py"
H200 = find_target("H200")
WHOLE = Settings(batch=64)
INPUT = 64 * 3 * 96 * 96 * 4  # bytes of a batch, which the loop keeps only as long as the model does


class Block(nn.Module):
    """The block of the script."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a feature map of the input's shape."""
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


JOB = Job(
    model=lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), *(Block() for _ in range(3)), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ),
    batch=lambda n, _: (torch.randn(n, 3, 96, 96), torch.randint(0, 16, (n,))),
    loss=nn.functional.cross_entropy,
    optimizer=lambda model: torch.optim.AdamW(model.parameters()),
)


def run_with(**options: Any) -> ScriptRun:
    device = EmulatedDevice(trace_device(H200), H200.name, H200.memory)
    return replace(ScriptRun(str(SCRIPT), (), None, device), **options)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"optimizer": "fused"}, marks=pytest.mark.medium),
        pytest.param({"memory_format": "channels_last"}, marks=pytest.mark.large),
        pytest.param({"precision": "amp-bf16"}, marks=pytest.mark.large),
        pytest.param({"checkpointing": ("1", "3")}, marks=pytest.mark.large),
        pytest.param({"offload": ("",)}, marks=pytest.mark.large),
        pytest.param({"loss_chunks": 8}, marks=pytest.mark.large),
    ],
    ids=str,
)
def test_script_with_settings_needs_what_a_job_needs(changed: dict[str, Any]) -> None:
    settings = replace(WHOLE, **changed)
    predicted = predict_trace(capture_script(run_with(settings=settings), 100).trace, settings, H200)
    expected = predict(JOB, settings, H200).allocated.value
    assert predicted.allocated.value == pytest.approx(expected, abs=1.01 * INPUT)
    if changed.keys() <= {"optimizer", "memory_format", "checkpointing"}:
        assert predicted.allocated.value == pytest.approx(expected, rel=0.001)
    assert "steady step, optimizer" in dict(predicted.phases)  # even if the update allocates nothing


@pytest.mark.medium
def test_two_batches_per_update_need_what_a_split_job_needs() -> None:
    settings = replace(WHOLE, micro_batch=32)
    capture = capture_script(run_with(batch=32, accumulates=True), 100)
    assert capture.loop.settings == settings
    predicted = predict_trace(capture.trace, settings, H200)
    assert predicted.allocated.value == pytest.approx(predict(JOB, settings, H200).allocated.value, rel=0.001)


@pytest.mark.medium
def test_first_pass_has_the_calls_of_one_batch() -> None:
    capture = capture_script(run_with(arguments=("--accumulate", "2")), 100)
    assert capture.loop.micro_batches == 2
    paths = [call.path for call in capture.first_pass.calls]
    assert paths == [
        "0",
        *(f"{block}{part}" for block in "123" for part in (".first", ".norm", ".second", "")),
        "4",
        "5",
        "",
    ]
    assert len(capture.trace.calls) == 2 * len(paths)
    assert not any(call.writes_inputs for call in capture.first_pass.calls)


@pytest.mark.medium
def test_setting_that_a_model_cannot_have_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"plannable.py can't be predicted: the model has no block 'nowhere'; use"):
        capture_script(run_with(settings=replace(WHOLE, checkpointing=("nowhere",))), 100)
