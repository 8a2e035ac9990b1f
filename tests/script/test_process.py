from __future__ import annotations

import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from oomph import Job, Settings
from oomph.errors import MissingFile, UsageError
from oomph.machine import find_target
from oomph.prediction import Prediction, predict, predict_trace, trace_device
from oomph.script import Capture, Model, ScriptRun, capture_script
from oomph.trace import EmulatedDevice

SCRIPTS = Path(__file__).parent / "scripts"
CLASSIFIER = Path(__file__).parents[2] / "examples" / "scripts" / "classifier.py"
H200 = find_target("H200")
EARLY_ENDS = [
    ("raise", r"failed at ends_early.py:9 with ValueError: the configuration is wrong; run"),
    ("return", r"called sys.exit\(\) before it built an optimizer; check the flags after --"),
    ("file", r"ends_early.py:16 with FileNotFoundError: .*missing.csv'; create the file, or pass"),
    ("module", r"'a_module_that_is_missing'; install the module into the Python environment"),
    ("rank", r"KeyError: 'LOCAL_RANK'; set the variables of torchrun for one rank: RANK=0"),
    ("input", r"EOFError.*; pass flags after -- with which it asks nothing"),
    ("syntax", r"failed at settings.py:1 with SyntaxError"),
    ("die", r"ended its process with exit code 3, its last line is 'no license'; run the script"),
]
pytestmark = pytest.mark.medium


def capture(name: str, *arguments: str, batch: int | None = None, gpu: str = "H200", seconds: float = 100) -> Capture:
    target = find_target(gpu)
    device = EmulatedDevice(trace_device(target), target.name, target.memory)
    return capture_script(ScriptRun(str(SCRIPTS / name), arguments, batch, device), seconds)


def prediction_of(capture: Capture) -> Prediction:
    return predict_trace(capture.trace, capture.loop.settings, H200)


def classifier() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


@pytest.mark.parametrize("batch", [pytest.param(None, marks=pytest.mark.large), 256])
def test_plain_loop_needs_what_its_job_needs(
    batch: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job(
        model=classifier,
        batch=lambda n, _: (torch.randn(n, 3, 32, 32), torch.randint(0, 10, (n,))),
        loss=nn.functional.cross_entropy,
        optimizer=lambda model: torch.optim.AdamW(model.parameters()),
    )
    captured = capture(str(CLASSIFIER), batch=batch)
    assert captured.loop.samples == (batch or 32)
    assert captured.loop.optimizers == ("AdamW",)
    assert captured.loop.micro_batches == 1
    predicted, expected = prediction_of(captured), predict(job, Settings(batch=batch or 32), H200)
    assert predicted.allocated.value == pytest.approx(expected.allocated.value, rel=0.001)
    assert predicted.needed.value == pytest.approx(expected.needed.value, rel=0.03)
    assert not list(tmp_path.iterdir())  # the script saves its model after an epoch


@pytest.mark.large
def test_accumulation_with_a_scaler_is_traced_as_it_is() -> None:
    job = Job(
        model=lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)),
        batch=lambda n, _: (torch.randn(n, 256), torch.randn(n, 256)),
        loss=nn.functional.mse_loss,
        optimizer=lambda model: torch.optim.AdamW(model.parameters()),
    )
    captured = capture("amp_accumulation.py")
    settings = Settings(batch=256, micro_batch=64, precision="amp-fp16")
    assert captured.loop.settings == settings
    expected = predict(job, settings, H200)
    assert prediction_of(captured).allocated.value == pytest.approx(expected.allocated.value, rel=0.03)


def test_gan_waits_for_both_optimizers() -> None:
    captured = capture("gan.py")
    assert {model.name for model in captured.loop.models} == {"Generator", "Discriminator"}
    assert captured.loop.optimizers == ("Adam", "Adam")
    kinds = dict(prediction_of(captured).peak.kinds)
    parameters = 4 * sum(model.parameters for model in captured.loop.models)
    assert kinds["parameter"] == pytest.approx(parameters, rel=0.01)
    assert kinds["optimizer state"] == pytest.approx(2 * parameters, rel=0.01)  # of both optimizers


class LateAdam(torch.optim.Adam):
    """Leaves its gradients to the step, which clears them where the script does."""

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002  torch's
        del set_to_none


class Gan(nn.Module):
    def __init__(self, script: dict[str, Any]) -> None:
        super().__init__()
        self.generator, self.discriminator = script["Generator"](), script["Discriminator"]()

    def forward(self, real: torch.Tensor) -> torch.Tensor:
        """Compute the generator's loss; gradients live as long as in the script."""
        self.discriminator.zero_grad()
        label = torch.full((len(real),), 1.0)
        self.losses = [nn.functional.binary_cross_entropy(self.discriminator(real), label)]
        self.losses[0].backward()
        fake = self.generator(torch.randn(len(real), 64, 1, 1))
        self.losses.append(nn.functional.binary_cross_entropy(self.discriminator(fake.detach()), label.fill_(0.0)))
        self.losses[1].backward()
        self.generator.zero_grad()
        return nn.functional.binary_cross_entropy(self.discriminator(fake), label.fill_(1.0))


@pytest.mark.large
@pytest.mark.parametrize("batch", [64, 512])
def test_gan_needs_what_a_job_needs_that_keeps_its_gradients(batch: int) -> None:
    script = runpy.run_path(str(SCRIPTS / "gan.py"))
    job = Job(
        model=lambda: Gan(script),
        batch=lambda n, _: torch.rand(n, 3, 16, 16),
        step=lambda model, real: model(real),
        optimizer=lambda model: [LateAdam(part.parameters()) for part in reversed(list(model.children()))],
    )
    predicted = prediction_of(capture("gan.py", batch=batch))
    assert predicted.allocated.value == pytest.approx(
        predict(job, Settings(batch=batch), H200).allocated.value, rel=0.005
    )


@pytest.mark.parametrize("flags", [(), ("--views",)])
def test_data_parallel_script_runs_as_one_rank(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    captured = capture("ddp.py", *flags)
    (model,) = captured.loop.models
    assert captured.loop.micro_batches == 1
    assert any("only rank of its process group" in assumption for assumption in captured.trace.assumptions)
    buckets = sum(s.size for s in captured.trace.storages if s.module == "buckets of DistributedDataParallel")
    assert buckets == pytest.approx(0 if flags else 4 * model.parameters, rel=0.001)
    assert not list(tmp_path.iterdir())


@pytest.mark.large
def test_script_without_a_loader_is_traced_with_its_own_batches() -> None:
    captured = capture("own_batches.py", "--batch_size", "16", "--compile")
    assert captured.loop.samples == 16
    assert not captured.loop.has_loader
    assert captured.loop.precision == "amp-bf16"
    assert any("torch.compile" in assumption for assumption in captured.trace.assumptions)
    tied = 500 * 128
    assert captured.loop.models == (Model("Gpt", 468_992),)
    assert sum(s.size for s in captured.trace.storages if s.kind.value == "parameter") < 4 * (468_992 + tied)


@pytest.mark.large
def test_batch_of_a_script_without_a_loader_is_left_to_its_flags() -> None:
    with pytest.raises(UsageError, match="without a torch DataLoader, so --batch can't replace them; omit --batch"):
        capture("own_batches.py", batch=64)


@pytest.mark.large
def test_script_that_stays_on_the_cpu_is_predicted_for_the_gpu() -> None:
    captured = capture("cpu_only.py")
    assert any("moves nothing to a GPU" in assumption for assumption in captured.trace.assumptions)
    assert captured.loop.samples == 8
    kinds = dict(prediction_of(captured).peak.kinds)
    assert kinds["parameter"] >= 4 * sum(p.numel() for p in nn.GRU(16, 32).parameters())
    assert kinds["saved activation"] > 4 * 8 * 10 * 32


@pytest.mark.large
def test_script_is_predicted_for_the_cpu() -> None:
    captured = capture("cpu_only.py", gpu="cpu")
    assert captured.loop.steps == 3
    assert predict_trace(captured.trace, captured.loop.settings, find_target("cpu")).allocated.value > 0


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("crashes.py", (), r"crashes.py failed at crashes.py:8 with KeyError: 'missing'; run the script itself"),
        pytest.param(
            "never_trains.py",
            (),
            r"ended after it built an optimizer, before a backward pass; pass flags after --",
            marks=pytest.mark.large,
        ),
        pytest.param(
            "own_batches.py",
            ("--length", "x"),
            r"called sys.exit\(2\) before it built an optimizer, its last line is",
            marks=pytest.mark.large,
        ),
        ("no_step.py", (), r"no_step.py ended after 64 backward passes, before an optimizer step; pass flags after --"),
        ("ends_early.py", ("exit",), r"called sys.exit\(0\) before .* 'nothing to do'; check the flags after --"),
        *(pytest.param("ends_early.py", (how,), message, marks=pytest.mark.large) for how, message in EARLY_ENDS),
    ],
)
def test_script_that_does_not_train_is_one_sentence(name: str, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        capture(name, *arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.large
def test_script_that_takes_too_long_is_ended() -> None:
    start = time.monotonic()
    with pytest.raises(UsageError, match=r"within 8 s: .*; raise --max-seconds"):
        capture("waits.py", seconds=8)
    assert time.monotonic() - start < 20


def test_missing_script_is_named() -> None:
    with pytest.raises(MissingFile, match="does not exist"):
        capture("nowhere.py")


def test_interrupt_ends_the_script_too() -> None:
    arguments = ["predict", str(SCRIPTS / "waits.py"), "--gpu", "H200", "--yes"]
    command = subprocess.Popen([sys.executable, "-m", "oomph", *arguments], stderr=subprocess.DEVNULL)
    process, deadline = psutil.Process(command.pid), time.monotonic() + 30
    while not (children := process.children()) and time.monotonic() < deadline:
        time.sleep(0.1)
    command.send_signal(signal.SIGINT)
    assert command.wait(30) == 130
    assert children
    assert psutil.wait_procs(children, timeout=10)[1] == []
