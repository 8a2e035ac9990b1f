from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import oomph
from oomph import document
from oomph.machine import find_target
from oomph.prediction import OutOfMemory, Prediction, predict_trace, replay, smallest_cap, trace_device
from oomph.settings import AllocatorConfig
from oomph.trace import CudaDevice, trace_step
from oomph.units import GIB, MIB

REPO = Path(__file__).parents[2]


def images(count: int, size: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))


def net() -> nn.Module:
    layers: list[nn.Module] = []
    for ins, outs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(ins, outs, 3, padding=1), nn.BatchNorm2d(outs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


JOB = oomph.Job(
    model=net,
    batch=images,
    loss=F.cross_entropy,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
)


@functools.cache
def predict(target: str = "H200", **settings: Any) -> Prediction:
    return oomph.predict(JOB, oomph.Settings(**{"batch": 16, "size": 128, **settings}), target)


@pytest.mark.medium
def test_estimates_are_ordered() -> None:
    prediction = predict()
    assert prediction.needed.value <= prediction.full_speed.value <= prediction.device.value
    assert prediction.allocated.value <= prediction.reserved.value
    for name in ("allocated", "reserved", "needed", "full_speed", "device", "host", "seconds"):
        estimate = getattr(prediction, name)
        assert 0 < estimate.low <= estimate.value <= estimate.high


@pytest.mark.medium
def test_larger_batch_needs_more_and_micro_batches_less() -> None:
    assert predict(batch=32).allocated.value > predict(batch=16).allocated.value
    assert predict(batch=32, micro_batch=8).allocated.value < predict(batch=16).allocated.value


@pytest.mark.medium
def test_half_precision_needs_less() -> None:
    assert predict(batch=64, precision="amp-bf16").allocated.value < 0.8 * predict(batch=64).allocated.value


def test_peak_is_accounted_for_completely() -> None:
    prediction = predict()
    total = sum(size for _, size in prediction.peak.kinds)
    assert total == sum(owner.size for owner in prediction.peak.owners)
    assert total == pytest.approx(prediction.allocated.value, rel=0.001)
    assert prediction.peak.phase in {"forward", "backward", "optimizer"}


def test_smallest_cap_runs_and_a_smaller_one_does_not() -> None:
    trace = trace_step(JOB, oomph.Settings(batch=16, size=128), CudaDevice())
    config = AllocatorConfig(expandable=True)
    uncapped = replay(trace, config)
    cap = smallest_cap(trace, config, uncapped)
    assert replay(trace, dataclasses.replace(config, cap=cap)).allocated <= uncapped.allocated
    with pytest.raises(OutOfMemory):
        replay(trace, dataclasses.replace(config, cap=cap - 4 * MIB))
    assert cap <= uncapped.reserved


@pytest.mark.medium
def test_high_of_needed_covers_fragmentation_of_the_default_allocator() -> None:
    fragmented = predict(batch=64, allocator="default")
    assert 1.05 * fragmented.needed.value < fragmented.reserved.value
    assert fragmented.needed.high == min(fragmented.reserved.value, 1.16 * fragmented.needed.value)
    expandable = predict(batch=64, allocator="expandable")
    assert expandable.needed.high == pytest.approx(1.02 * expandable.needed.value + 2 * MIB)


@pytest.mark.medium
def test_ranges_are_wider_on_unmeasured_architectures() -> None:
    hopper, ampere = predict(), predict(target="RTX 3060")
    assert ampere.allocated.high / ampere.allocated.value > hopper.allocated.high / hopper.allocated.value
    assert ampere.reserved.high / ampere.reserved.value == pytest.approx(1.15)
    assert any("Hopper" in assumption for assumption in ampere.assumptions)
    assert hopper.assumptions == ()


@pytest.mark.medium
def test_reserved_stays_within_the_memory_of_the_gpu_if_the_step_can_run_there() -> None:
    settings = oomph.Settings(batch=64, size=128, allocator="default")
    trace = trace_step(JOB, settings, CudaDevice())
    h200 = find_target("H200")
    free = predict_trace(trace, settings, h200)
    assert free.needed.value < free.reserved.value - 4 * MIB
    end = int(free.reserved.value) - 2 * MIB
    small = predict_trace(trace, settings, dataclasses.replace(h200, memory=end + h200.outside[0]))
    assert free.needed.value <= small.reserved.value <= end
    assert small.full_speed.value == free.full_speed.value
    too_small = predict_trace(trace, settings, dataclasses.replace(h200, memory=GIB // 64 + h200.outside[0]))
    assert too_small.reserved.value == free.reserved.value


def test_trace_knows_the_cudnn_of_the_target() -> None:
    device = trace_device(find_target("H200", torch="2.6"))
    assert isinstance(device, CudaDevice)
    assert device.cudnn == 90100


@pytest.mark.medium
def test_older_gpu_has_smaller_workspaces() -> None:
    assert predict(target="A100-80").allocated.value < predict().allocated.value


@pytest.mark.medium
def test_slower_gpu_takes_longer() -> None:
    assert predict(target="T4", batch=64).seconds.value > 3 * predict(batch=64).seconds.value


def test_prediction_is_json_serializable() -> None:
    data = json.loads(json.dumps(document.write("prediction", 1, predict())))
    assert data["allocated"]["origin"] == "traced"


@pytest.mark.medium
def test_target_may_be_custom() -> None:
    custom = dataclasses.replace(find_target("H200"), name="mine", memory=8 * GIB)
    trace = trace_step(JOB, oomph.Settings(batch=4, size=64), CudaDevice())
    assert predict_trace(trace, oomph.Settings(batch=4, size=64), custom).target == "mine"


@pytest.mark.large
def test_command_uses_little_memory_for_any_batch() -> None:
    code = (
        "import sys; from oomph.cli import run; from oomph.machine import peak_rss_bytes; "
        "code = run(sys.argv[1:]); sys.stderr.write(str(peak_rss_bytes())); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "predict", "examples/jobs/small_net.py:job"]
    command += ["--batch", "4096", "--size", "512", "--gpu", "H200", "--json"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout)["prediction"]["allocated"]["value"] > 1000 * GIB
    assert int(done.stderr) < GIB


@pytest.mark.medium
def test_model_of_a_billion_parameters_is_predicted() -> None:
    def large_model() -> nn.Module:
        return nn.Sequential(nn.Embedding(32000, 16384), *(nn.Linear(16384, 16384, bias=False) for _ in range(2)))

    job = oomph.Job(
        model=large_model,
        batch=lambda n, _: (torch.randint(0, 32000, (n, 128)), torch.randn(n, 128, 16384)),
        loss=F.mse_loss,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), 1e-4),
    )
    prediction = oomph.predict(job, oomph.Settings(batch=1, size=128, precision="amp-bf16"), "H200")
    parameters = 32000 * 16384 + 2 * 16384**2
    assert parameters > 1e9
    assert prediction.allocated.value > 16 * parameters  # weights, gradients and two moments in fp32
    assert prediction.peak.phase == "optimizer"


def test_phases_between_the_steps_are_predicted() -> None:
    phases = dict(predict().phases)
    assert phases["validation"] < phases["steady step, backward"]
    assert phases["moving average"] > phases["checkpoint"] > 0


def test_model_is_predicted_even_if_the_loss_rejects_its_eval_output() -> None:
    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: torch.Tensor) -> object:
            return self.conv(x).mean((2, 3)) if self.training else [{"boxes": x}]

    prediction = oomph.predict(
        oomph.Job(
            model=Detector,
            batch=lambda n, _: (torch.randn(n, 3, 64, 64), torch.randn(n, 8)),
            loss=F.mse_loss,
            optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
        ),
        oomph.Settings(batch=2, size=64),
        "H200",
    )
    assert any("validation was not traced" in assumption for assumption in prediction.assumptions)


@pytest.mark.medium
def test_checkpointing_needs_less() -> None:
    def deep() -> nn.Module:
        def block() -> nn.Module:
            return nn.Sequential(nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU()))

        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body = block()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + self.body(x)

        return nn.Sequential(*(Block() for _ in range(8)))

    job = oomph.Job(
        model=deep,
        batch=lambda n, _: (torch.randn(n, 256), torch.randn(n, 256)),
        loss=F.mse_loss,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )
    plain = oomph.predict(job, oomph.Settings(batch=65536), "H200").allocated.value
    checkpointed = oomph.predict(job, oomph.Settings(batch=65536, checkpointing="blocks"), "H200").allocated.value
    assert checkpointed < 0.5 * plain


@pytest.mark.medium
def test_fused_update_needs_no_more_than_foreach() -> None:
    def allocated(variant: str) -> float:
        job = dataclasses.replace(JOB, optimizer=lambda model: torch.optim.AdamW(model.parameters()))
        return oomph.predict(job, oomph.Settings(batch=1, size=32, optimizer=variant), "H200").allocated.value

    assert allocated("fused") <= allocated("foreach")
