"""accelerate, run for real. `make test-frameworks` installs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import oomph
from oomph.errors import CannotFit, MissingFile, RetriesExhausted, UsageError
from oomph.integrations.accelerate import AcceleratedGuard, describe, guard
from oomph.machine import rss_bytes
from oomph.monitor import load_record
from oomph.units import MIB

from ..recovery.nets import plain_batch, plain_net
from .forwards import Forwards

accelerate: Any = pytest.importorskip("accelerate")
pytestmark = pytest.mark.frameworks
mse_loss = nn.functional.mse_loss
REPO = Path(__file__).parents[2]


class Setup:
    """Prepared objects: a net in double precision, SGD with momentum, a schedule, 24 samples in batches of 4."""

    def __init__(self, steps: int = 1, mixed_precision: str = "no", samples: int = 24) -> None:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.state.GradientState._reset_state()
        self.accelerator = accelerate.Accelerator(
            cpu=True, gradient_accumulation_steps=steps, mixed_precision=mixed_precision
        )
        dtype = torch.float64 if mixed_precision == "no" else torch.float32
        self.net = plain_net(dtype)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        data: Any = TensorDataset(*plain_batch(samples, dtype=dtype))
        loader: Any = DataLoader(data, batch_size=4)
        self.model, self.optimizer, self.loader, self.scheduler = self.accelerator.prepare(
            self.net, optimizer, loader, schedule
        )

    def guard(self, **options: Any) -> AcceleratedGuard:
        defaults = {"optimizer": self.optimizer, "scheduler": self.scheduler, "loss": mse_loss, "clip_grad_norm": 0.2}
        return guard(self.accelerator, model=self.model, **{**defaults, **options})


def assert_same_weights(setup: Setup, expected: Setup, tolerance: float = 1e-12) -> None:
    for param, expected_param in zip(setup.net.parameters(), expected.net.parameters(), strict=True):
        torch.testing.assert_close(param, expected_param, rtol=tolerance, atol=tolerance)


def plain_loop(setup: Setup, epochs: int = 1) -> None:
    for _ in range(epochs):
        for inputs, targets in setup.loader:
            with setup.accelerator.accumulate(setup.model):
                setup.accelerator.backward(mse_loss(setup.model(inputs), targets))
                update(setup)


def update(setup: Setup) -> None:
    if setup.accelerator.sync_gradients:
        setup.accelerator.clip_grad_norm_(setup.model.parameters(), 0.2)
    setup.optimizer.step()
    setup.scheduler.step()
    setup.optimizer.zero_grad()


def guarded_loop(setup: Setup, guarded: AcceleratedGuard, skip: int = 0, *, own_update: bool = False) -> None:
    for batch in setup.accelerator.skip_first_batches(setup.loader, skip):
        with setup.accelerator.accumulate(setup.model):
            if own_update:
                guarded.backward(batch)
                update(setup)
            else:
                guarded.step(batch)


@pytest.mark.parametrize("own_update", [False, True], ids=["step", "backward"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_with_errors_are_those_of_a_plain_loop(steps: int, own_update: bool) -> None:  # noqa: FBT001
    plain, setup = Setup(steps), Setup(steps)
    plain_loop(plain)
    setup.net.register_forward_pre_hook(Forwards([2, 6]))
    with setup.guard() as guarded:
        guarded_loop(setup, guarded, own_update=own_update)
    assert_same_weights(setup, plain)
    assert setup.scheduler.get_last_lr() == plain.scheduler.get_last_lr()


def test_an_incomplete_update_is_weighted_as_accelerate_does() -> None:
    """The last update of an epoch has one batch of two samples; accelerate divides it by two all the same."""
    plain, setup = Setup(2, samples=22), Setup(2, samples=22)
    plain_loop(plain)
    setup.net.register_forward_pre_hook(Forwards([2, 6]))
    with setup.guard() as guarded:
        guarded_loop(setup, guarded, own_update=True)
    assert_same_weights(setup, plain)


def test_bfloat16_is_accelerates_own() -> None:
    plain, whole, setup = Setup(2, "bf16"), Setup(2, "bf16"), Setup(2, "bf16")
    plain_loop(plain)
    with whole.guard() as guarded:
        guarded_loop(whole, guarded)
    assert_same_weights(whole, plain, 1e-6)
    setup.net.register_forward_pre_hook(Forwards([2]))
    with setup.guard() as guarded:
        guarded_loop(setup, guarded)
    assert_same_weights(setup, plain, 1e-3)


def test_the_record_shows_errors_and_growth_and_ends(tmp_path: Path) -> None:
    setup = Setup(samples=48)
    setup.net.register_forward_pre_hook(Forwards([2]))
    with setup.guard(record=tmp_path / "run.jsonl", cooldown_steps=3) as guarded:
        guarded_loop(setup, guarded)
    record = load_record(tmp_path / "run.jsonl")
    assert [step["micro_batches"] for step in record.steps] == [1, 2, 2, 2, *[1] * 8]
    assert record.has_ended
    assert record.samples


@pytest.mark.parametrize("own_update", [False, True], ids=["step", "backward"])
@pytest.mark.parametrize("failing", [3, 4], ids=["new update", "mid-update"])
def test_the_emergency_checkpoint_continues(tmp_path: Path, failing: int, own_update: bool) -> None:  # noqa: FBT001
    plain, stopped, resumed = Setup(2), Setup(2), Setup(2)
    plain_loop(plain)
    stopped.net.register_forward_pre_hook(Forwards([failing], from_then_on=True))
    folder = tmp_path / "state"
    with pytest.raises(RetriesExhausted) as error, stopped.guard(checkpoint=folder) as guarded:
        guarded_loop(stopped, guarded, own_update=own_update)
    assert error.value.checkpoint == str(folder)
    with resumed.guard() as guarded:
        assert guarded.resume(folder) == 2
        guarded_loop(resumed, guarded, 2, own_update=own_update)
    assert_same_weights(resumed, plain)
    assert resumed.scheduler.get_last_lr() == plain.scheduler.get_last_lr()


@pytest.mark.parametrize("own_update", [False, True], ids=["step", "backward"])
def test_a_signal_saves_the_last_update(tmp_path: Path, own_update: bool) -> None:  # noqa: FBT001
    plain, stopped, resumed = Setup(2), Setup(2), Setup(2)
    plain_loop(plain)
    sent: list[bool] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if stopped.optimizer.state and not sent:  # after the first update
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return mse_loss(outputs, targets)

    guarded = stopped.guard(loss=loss, checkpoint=tmp_path)
    with pytest.raises(KeyboardInterrupt), guarded, guarded.signals():
        guarded_loop(stopped, guarded, own_update=own_update)
    with resumed.guard() as guarded:
        assert guarded.resume(tmp_path) == 2
        guarded_loop(resumed, guarded, 2, own_update=own_update)
    assert_same_weights(resumed, plain)


def test_a_budget_plans_micro_batches(tmp_path: Path) -> None:
    setup = Setup()
    net = nn.Sequential(nn.Linear(4, 1024), *[nn.Sequential(nn.Linear(1024, 1024), nn.Tanh()) for _ in range(4)])
    model, optimizer = setup.accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    batch = torch.randn(4096, 4), torch.randn(4096, 1024)

    def train(budget: int) -> None:
        options = {"model": model, "optimizer": optimizer, "loss": mse_loss, "record": tmp_path / "run.jsonl"}
        with guard(setup.accelerator, budget=budget, **options) as guarded:
            guarded.step(batch)

    train(rss_bytes() + 350 * MIB)
    record = load_record(tmp_path / "run.jsonl")
    plan = next(event for event in record.events if event["event"] == "plan")["plan"]
    assert plan["settings"]["micro_batch"] < plan["settings"]["batch"] == 4096
    assert record.steps[0]["micro_batches"] > 1
    with pytest.raises(
        CannotFit, match="the budget is 1 MiB, and the guard needs 64 MiB beside the step itself; raise"
    ):
        train(MIB)


def test_prepared_objects_are_predicted_as_a_job_written_by_hand() -> None:
    setup = Setup(2)
    batch = next(iter(setup.loader))
    by_hand = oomph.Job.of(setup.net, batch, loss=mse_loss, optimizer=setup.optimizer.optimizer)
    expected = oomph.predict(by_hand, oomph.Settings(batch=8, micro_batch=4), target="RTX 3060")
    described = describe(setup.accelerator, batch, model=setup.model, optimizer=setup.optimizer, loss=mse_loss)
    assert oomph.predict(described, target="RTX 3060").allocated == expected.allocated


def test_several_optimizers_are_planned(tmp_path: Path) -> None:
    setup = Setup()
    optimizers = [setup.accelerator.prepare(torch.optim.SGD([p], lr=0.1)) for p in setup.net.parameters()]
    options = {"optimizer": optimizers, "scheduler": None, "budget": "64GiB", "record": tmp_path / "run.jsonl"}
    with setup.guard(**options) as guarded:
        guarded_loop(setup, guarded)
    assert {step["micro_batches"] for step in load_record(tmp_path / "run.jsonl").steps} == {1}


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_a_limit_that_kills_the_loop_splits_batches(tmp_path: Path) -> None:
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(MIB)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))

    def start(kind: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.integrations.accelerate_process", kind, str(tmp_path)]
        return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor() as pool:
        plain, guarded = pool.map(start, ("plain", "guarded"))
    assert plain.returncode != 0
    assert "can't allocate memory" in plain.stderr
    assert guarded.returncode == 0, guarded.stderr
    micro_batches = [step["micro_batches"] for step in load_record(tmp_path / "guarded.jsonl").steps]
    assert min(micro_batches[1:]) > 1


def test_evaluation_is_guarded_after_the_first_step() -> None:
    setup = Setup()
    with setup.guard() as guarded:
        with pytest.raises(UsageError, match="nothing was trained yet"):
            guarded.evaluate(setup.loader, lambda model, batch: len(batch[0]))
        guarded_loop(setup, guarded)
        assert guarded.evaluate(setup.loader, lambda model, batch: len(batch[0])) == [4] * 6


def test_wrong_arguments_are_one_sentence(tmp_path: Path) -> None:
    setup = Setup()
    plain = torch.optim.SGD(setup.net.parameters(), lr=0.1)
    with pytest.raises(UsageError, match=r"the optimizer isn't prepared; pass what accelerator.prepare returned"):
        guard(setup.accelerator, model=setup.model, optimizer=plain, loss=mse_loss)
    with pytest.raises(UsageError, match=r"the optimizer isn't prepared"):
        guard(setup.accelerator, model=setup.model, optimizer=[setup.optimizer, plain], loss=mse_loss)
    prepared = setup.accelerator.prepare(torch.optim.lr_scheduler.ReduceLROnPlateau(plain))
    with pytest.raises(UsageError, match=r"step\(\) of .* requires an argument, such as a metric"):
        setup.guard(scheduler=prepared).step(next(iter(setup.loader)))
    with pytest.raises(UsageError, match="scaler= is set by the Accelerator"):
        setup.guard(scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(UsageError, match="guard got 'micro_batches', which accelerate sets itself or doesn't know"):
        setup.guard(micro_batches=2)
    with pytest.raises(UsageError, match="micro_batch is 0"):
        setup.guard(micro_batch=0)
    with pytest.raises(MissingFile, match=r"there is no '.*position.json'; name the folder"):
        setup.guard().resume(tmp_path)


def test_a_model_that_isnt_prepared_is_refused() -> None:
    """Only the forward of a prepared model runs in mixed precision."""
    setup = Setup(mixed_precision="bf16")
    options = {"optimizer": setup.optimizer, "loss": mse_loss}
    for model in (plain_net(torch.float32), nn.Sequential(plain_net(torch.float32))):
        with pytest.raises(UsageError, match=r"the model isn't prepared; pass what accelerator.prepare returned"):
            guard(setup.accelerator, model=model, **options)
    with pytest.raises(UsageError, match=r"model is a function; pass the model that accelerator.prepare returned"):
        guard(setup.accelerator, model=mse_loss, **options)  # type: ignore[arg-type]


def test_models_that_were_prepared_in_other_ways_are_guarded() -> None:
    setup = Setup(mixed_precision="bf16")
    accelerator = setup.accelerator
    other = accelerate.Accelerator(cpu=True)
    compiled: Any = torch.compile(setup.model, backend="eager")
    for model in (
        accelerator.prepare_model(plain_net(torch.float32)),
        accelerator.prepare_model(plain_net(torch.float32), evaluation_mode=True),
        accelerator.prepare_model(torch.compile(plain_net(torch.float32), backend="eager")),
        other.prepare(plain_net(torch.float32)),
        accelerator.unwrap_model(setup.model),
        compiled,
        nn.DataParallel(setup.model),
        nn.ModuleDict({"net": setup.model, "head": nn.Linear(2, 2)}),
        setup.model[0],
    ):
        guard(accelerator, model=model, optimizer=setup.optimizer, loss=mse_loss).close()


def test_an_old_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup()
    monkeypatch.setattr(accelerate, "__version__", "0.34.2")
    with pytest.raises(UsageError, match=r"accelerate 0.34.2 is installed, and oomph needs 1.0 or newer"):
        setup.guard()


def test_the_example_trains(tmp_path: Path) -> None:
    script = REPO / "examples/accelerate/train.py"
    folders = [str(Path(oomph.__file__).parents[1]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    process = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    numbers = re.fullmatch(r"160 batches in 4 micro-batches each, accuracy (0\.\d+)\n", process.stdout)
    assert numbers is not None, process.stdout
    assert float(numbers[1]) > 0.9
