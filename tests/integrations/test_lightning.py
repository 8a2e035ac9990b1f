"""Lightning, run for real. `make test-frameworks` installs it."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import CannotFit, RetriesExhausted, UsageError
from oomph.monitor import load_record
from oomph.units import MIB

from .forwards import Forwards

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]
pl: Any = pytest.importorskip("lightning.pytorch")
REPO = Path(__file__).parents[2]


@dataclass
class Outcome:
    """What a run left behind."""

    trainer: Any
    weights: dict[str, Tensor]
    lines: list[tuple[int | None, dict[str, float]]]
    calls: list[tuple[Any, ...]]
    outputs: list[Any]
    raised: int


class Fits:
    """Fits modules in a folder, with and without a guard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def trainer(self, callback: Any = None, *, callbacks: Any = (), **options: Any) -> Any:
        settings = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        return pl.Trainer(
            accelerator="cpu", log_every_n_steps=1, default_root_dir=self.folder,
            callbacks=[*callbacks, *([] if callback is None else [callback])],
            **{"max_epochs": 2, "logger": False, **settings, **options},
        )  # fmt: skip

    def fit(
        self,
        module: Any,
        callback: Any = None,
        *,
        failing: Any = (),
        data: Any = None,
        ckpt_path: Any = None,
        **options: Any,
    ) -> Outcome:
        from .modules import Calls, Values, loader

        forwards, calls, values = Forwards(failing), Calls(), Values()
        handle = module.body[2].register_forward_pre_hook(forwards)
        trainer = self.trainer(callback, callbacks=[calls], logger=values, **options)
        trainer.fit(module, data or loader(), ckpt_path=ckpt_path)
        handle.remove()
        weights = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
        return Outcome(trainer, weights, values.lines, calls.calls, calls.outputs, forwards.raised)


@pytest.fixture
def fits(tmp_path: Path) -> Fits:
    torch.set_num_threads(1)  # the tensors are tiny, and other tests run beside these
    return Fits(tmp_path)


def guard_callback(**options: Any) -> Any:
    from oomph.integrations.lightning import GuardCallback

    return GuardCallback(**options)


def assert_close(outcome: Outcome, expected: Outcome, tolerance: float, logged: float = 1e-6) -> None:
    for name, tensor in expected.weights.items():
        torch.testing.assert_close(outcome.weights[name], tensor, rtol=tolerance, atol=tolerance)
    assert outcome.trainer.global_step == expected.trainer.global_step
    assert [call[0] for call in outcome.calls] == [call[0] for call in expected.calls]
    assert len(outcome.lines) == len(expected.lines)
    for (step, line), (expected_step, expected_line) in zip(outcome.lines, expected.lines, strict=True):
        assert step == expected_step
        assert line == pytest.approx(expected_line, rel=logged, abs=logged / 10)


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}])
def test_an_undisturbed_run_is_that_of_lightning_bit_for_bit(fits: Fits, options: Mapping[str, Any]) -> None:
    from .modules import Classifier

    plain = fits.fit(Classifier("dict"), **options)
    guarded = fits.fit(Classifier("dict"), guard_callback(), **options)
    assert all(torch.equal(guarded.weights[name], tensor) for name, tensor in plain.weights.items())
    assert (guarded.lines, guarded.calls) == (plain.lines, plain.calls)
    for output, expected in zip(guarded.outputs, plain.outputs, strict=True):
        assert output.keys() == expected.keys()
        assert all(torch.equal(output[name], value) for name, value in expected.items())
    assert "_make_closure" not in vars(guarded.trainer.fit_loop.epoch_loop.automatic_optimization)


def test_a_module_collects_its_losses_once(fits: Fits) -> None:
    """The check of the first steps runs training_step a few times more, which must not show."""
    from .modules import Classifier

    class Collecting(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.losses: list[Tensor] = []
            self.seen = {"samples": 0}

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.losses.append(loss.detach())
            self.seen["samples"] += len(batch[0])
            return loss

    plain, guarded = Collecting(), Collecting()
    fits.fit(plain)
    fits.fit(guarded, guard_callback(extra_state=[guarded]))
    assert guarded.seen == plain.seen
    assert torch.equal(torch.stack(guarded.losses), torch.stack(plain.losses))


def test_a_module_that_uses_its_logger_logs_once_per_batch(fits: Fits) -> None:
    from lightning.pytorch.loggers import CSVLogger

    from .modules import Classifier, Values, loader

    class Logging(Classifier):
        folders: set[Any]

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.logger.log_metrics({"direct": loss.item()}, step=self.global_step)
            self.trainer.logger.log_metrics({"through the trainer": loss.item()})
            for logger in self.loggers:
                logger.experiment.log_metrics({"experiment": loss.item()})
            self.folders.add((self.loggers[1].log_dir, self.loggers[1].version, self.loggers[1].name))
            return loss

    class Experiment(Values):
        @property
        def experiment(self) -> Any:
            return self

    def fit(callback: Any = None) -> tuple[Any, ...]:
        module, values, files = Logging(), Experiment(), CSVLogger(fits.folder, version=3)
        module.folders = set()
        trainer = fits.trainer(callback, logger=[values, files])
        trainer.fit(module, loader())
        assert trainer.loggers == [values, files]
        return values.lines, files.experiment.metrics, module.folders

    plain, guarded = fit(), fit(guard_callback())
    assert guarded == plain
    assert len(plain[2]) == 1


@pytest.mark.parametrize(
    ("outputs", "options"),
    [
        ("loss", {}),
        ("loss", {"accumulate_grad_batches": 4, "gradient_clip_val": 0.1}),
        ("dict", {"accumulate_grad_batches": 2, "gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
        ("none", {"accumulate_grad_batches": 2}),
        ("none", {"precision": "64-true"}),
    ],
    ids=["plain", "accumulated", "dict", "none", "double"],
)
def test_epochs_with_errors_are_those_of_the_undisturbed_run(
    fits: Fits, outputs: str, options: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Two epochs of six batches; losses, metrics and callbacks are logged per step and per epoch."""
    from .modules import Classifier

    plain = fits.fit(Classifier(outputs), **options)
    guarded = fits.fit(Classifier(outputs), guard_callback(), failing=(2, 5, 12), **options)
    assert guarded.raised == 3
    assert guarded.calls == plain.calls
    assert_close(guarded, plain, 1e-12)
    for output, expected in zip(guarded.outputs, plain.outputs, strict=True):
        assert output.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(output[name], value)
    assert "attribute" not in caplog.text  # those of metrics add up


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16-mixed", 2e-3), ("32-true", 1e-6)])
def test_precisions_of_lightning(fits: Fits, precision: str, tolerance: float) -> None:
    from .modules import Classifier, loader

    options: dict[str, Any] = {"precision": precision, "accumulate_grad_batches": 2, "gradient_clip_val": 1.0}

    def fit(**more: Any) -> Outcome:
        return fits.fit(Classifier(dtype=torch.float32), data=loader(torch.float32), **options, **more)

    plain, guarded = fit(), fit(callback=guard_callback(), failing=(2, 5, 12))
    assert guarded.raised == 3
    assert_close(guarded, plain, tolerance, logged=10 * tolerance)


def test_a_scaler_of_lightning_scales_once(fits: Fits) -> None:
    """The loss of 16-mixed is scaled by the plugin's own scaler, which the plugin updates."""
    from lightning.pytorch.plugins import MixedPrecision

    from .modules import Classifier, loader

    def fit(callback: Any, failing: Any = ()) -> tuple[Outcome, Any]:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)
        plugin = MixedPrecision("16-mixed", "cpu", scaler)
        module = Classifier(dtype=torch.float32)
        return fits.fit(module, callback, failing=failing, data=loader(torch.float32), plugins=[plugin]), scaler

    (plain, scaler), (guarded, guarded_scaler) = fit(None), fit(guard_callback(), (2, 5))
    assert guarded.raised == 2
    assert guarded_scaler.state_dict() == scaler.state_dict()
    assert scaler.get_scale() > 2.0**8
    assert_close(guarded, plain, 2e-3, logged=2e-2)


@pytest.mark.large
def test_pytorch_lightning_is_the_same(fits: Fits) -> None:
    """The other package has classes of its own."""
    script = (
        "import tests.integrations.conftest, torch, pytorch_lightning as pl\n"
        "from oomph.integrations.lightning import GuardCallback\n"
        "class Module(pl.LightningModule):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = torch.nn.Linear(2, 1)\n"
        "    def training_step(self, batch):\n        return self.layer(batch[0]).square().mean()\n"
        "    def configure_optimizers(self):\n        return torch.optim.SGD(self.parameters(), 0.1)\n"
        "data = torch.utils.data.TensorDataset(torch.ones(12, 2))\n"
        "callback = GuardCallback(micro_batch=2)\n"
        "assert isinstance(callback, pl.Callback)\n"
        "trainer = pl.Trainer(accelerator='cpu', max_epochs=1, logger=False, callbacks=[callback])\n"
        "trainer.fit(Module(), torch.utils.data.DataLoader(data, 4))\n"
        "import sys; print('loaded', 'lightning' in sys.modules, trainer.global_step)\n"
    )
    process = run_python("-c", script, folder=fits.folder)
    assert process.returncode == 0, process.stderr
    assert "loaded False 3" in process.stdout


def test_losses_of_manual_optimization_are_split(fits: Fits) -> None:
    from oomph.integrations.lightning import manual_backward

    from .modules import Classifier

    class Manual(Classifier):
        automatic_optimization = False

        def training_step(self, batch: Any, _: int) -> None:
            first, second = self.optimizers()
            for optimizer, factor in ((first, 1.0), (second, 0.5)):
                optimizer.zero_grad()

                def loss(module: Any, batch: Any, factor: float = factor) -> Tensor:
                    value: Tensor = factor * nn.functional.cross_entropy(module(batch[0]), batch[1])
                    module.log(f"loss {factor}", value, on_step=True, on_epoch=True)
                    return value

                manual_backward(self, batch, loss)
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(layer.parameters(), 0.1) for layer in (self.body[0], self.body[2])]

        def on_train_epoch_end(self) -> None:
            pass

    plain = fits.fit(Manual())
    guarded = fits.fit(Manual(), guard_callback(), failing=(2, 5))
    assert guarded.raised == 2
    assert guarded.calls == plain.calls
    assert_close(guarded, plain, 1e-12)
    assert plain.trainer.global_step == 24


def test_manual_optimization_without_manual_backward_is_named(fits: Fits, caplog: pytest.LogCaptureFixture) -> None:
    from .modules import Classifier

    class Unguarded(Classifier):
        automatic_optimization = False

        def training_step(self, batch: Any, _: int) -> None:
            self.manual_backward(nn.functional.cross_entropy(self(batch[0]), batch[1]))
            self.optimizers().step()

        def on_train_epoch_end(self) -> None:
            pass

    fits.fit(Unguarded(), guard_callback())
    assert "Nothing was guarded: training_step doesn't call manual_backward" in caplog.text


def test_the_record_shows_errors_and_growth_and_ends(fits: Fits, tmp_path: Path) -> None:
    from .modules import Classifier

    path = tmp_path / "run.jsonl"
    fits.fit(Classifier(), guard_callback(record=path, cooldown_steps=3), failing=(2,))
    record = load_record(path)
    assert record.has_ended
    assert [step["micro_batches"] for step in record.steps] == [1, 2, 2, 2, *[1] * 8]
    assert [event["event"] for event in record.events] == ["oom", "end"]


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(1, id="first batch", marks=pytest.mark.large),
        pytest.param(4, id="mid-update"),
        pytest.param(6, id="end of epoch", marks=pytest.mark.large),
        pytest.param(7, id="new epoch"),
        pytest.param(8, id="mid-update of new epoch", marks=pytest.mark.large),
        pytest.param(11, id="last update"),
    ],
)
def test_the_emergency_checkpoint_continues_bit_for_bit(fits: Fits, failing: int) -> None:
    """Each epoch has six batches in three updates; the loader says where it is, so Lightning can continue within."""
    from .modules import Classifier

    options: dict[str, Any] = {"accumulate_grad_batches": 2}
    plain = fits.fit(Classifier(optimizer="adam"), **options)
    stopped = Classifier(optimizer="adam")
    stopped.body[2].register_forward_pre_hook(Forwards([failing], from_then_on=True))
    from .modules import loader

    with pytest.raises(RetriesExhausted) as error:
        fits.trainer(guard_callback(), **options).fit(stopped, loader())
    path = error.value.checkpoint
    assert path == str(fits.folder / "emergency.ckpt")
    assert torch.load(path, weights_only=True)["global_step"] == (failing - 1) // 2
    for callback in (None, guard_callback()):
        resumed = fits.fit(Classifier(optimizer="adam"), callback, ckpt_path=path, **options)
        assert resumed.trainer.global_step == plain.trainer.global_step == 6
        assert all(torch.equal(resumed.weights[name], tensor) for name, tensor in plain.weights.items())
        steps = [step for step, line in resumed.lines if "loss_step" in line]
        assert steps == [step for step, line in plain.lines if "loss_step" in line][(failing - 1) // 2 :]


def test_a_signal_saves_the_last_update(fits: Fits, tmp_path: Path) -> None:
    from .modules import Classifier, loader

    class Interrupt(pl.Callback):  # type: ignore[misc]
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    record, module = tmp_path / "run.jsonl", Classifier()
    with pytest.raises(SystemExit):  # so does Lightning after Ctrl-C
        fits.trainer(guard_callback(signals=True, record=record), callbacks=[Interrupt()]).fit(module, loader())
    assert [event["event"] for event in load_record(record).events] == ["stopped", "error", "end"]
    assert torch.load(tmp_path / "emergency.ckpt", weights_only=True)["global_step"] == 2
    plain = fits.fit(Classifier())
    resumed = fits.fit(Classifier(), ckpt_path=tmp_path / "emergency.ckpt")
    assert all(torch.equal(resumed.weights[name], tensor) for name, tensor in plain.weights.items())


def wide(batch: int = 64) -> tuple[Any, Any]:
    """Return a module with large activations, and its loader."""
    from .modules import Classifier, loader

    module = Classifier(dtype=torch.float32, optimizer="adam")
    module.body = nn.Sequential(nn.Linear(8, 16384), nn.Tanh(), nn.Tanh(), nn.Linear(16384, 4))
    return module, loader(torch.float32, count=4 * batch, batch=batch)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_trainer_is_predicted_as_a_job_written_by_hand(fits: Fits, steps: int) -> None:
    from oomph.integrations.lightning import describe

    module, data = wide()
    trainer = fits.trainer(accumulate_grad_batches=steps, precision="bf16-mixed")
    before = (torch.get_rng_state(), set(vars(module)))
    prediction = oomph.predict(describe(trainer, module, data), target="H200")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert set(vars(module)) == before[1]
    assert trainer.lightning_module is None
    job = oomph.Job.of(
        module.body, (torch.randn(64, 8), torch.zeros(64, dtype=torch.long)),
        loss=nn.functional.cross_entropy, optimizer=torch.optim.Adam(module.body.parameters()),
    )  # fmt: skip
    accumulated = {"batch": 128, "micro_batch": 64} if steps == 2 else {"batch": 64}
    settings = oomph.Settings(precision="amp-bf16", allocator="default", **accumulated)  # type: ignore[arg-type]
    by_hand = oomph.predict(job, settings, "H200")
    assert prediction.allocated.value == pytest.approx(by_hand.allocated.value, rel=0.02)


def test_a_fitted_trainer_is_predicted(fits: Fits) -> None:
    module, data = wide()
    trainer = fits.trainer(max_steps=1)
    with pytest.raises(UsageError, match=r"the Trainer has no model before fit\(\)"):
        oomph.predict(trainer, target="H200")
    with pytest.raises(UsageError, match="a Classifier can't be predicted alone"):
        oomph.predict(module, target="H200")
    trainer.fit(module, data)
    assert oomph.predict(trainer, target="H200").allocated.value > 8 * MIB
    assert oomph.plan(trainer, target="H200").settings.batch == 64


def test_a_batch_number_of_any_name_is_predicted(fits: Fits) -> None:
    from .modules import Classifier, loader

    class Base(Classifier):
        def on_train_epoch_end(self) -> None:
            pass

    class Numbered(Base):
        def training_step(self, batch: Any, number: int) -> Any:
            return nn.functional.cross_entropy(self(batch[0]), batch[1]) * (number + 1)

    class Plain(Base):
        def training_step(self, batch: Any) -> Any:  # type: ignore[override]
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

    for module in (Numbered(), Plain()):
        trainer = fits.trainer(max_steps=1)
        trainer.fit(module, loader())
        assert oomph.predict(trainer, target="H200").allocated.value > 0


def test_a_budget_plans_micro_batches_and_nothing_else(fits: Fits, tmp_path: Path) -> None:
    from oomph.machine import rss_bytes

    module, data = wide(2048)
    record = tmp_path / "run.jsonl"
    budget = rss_bytes() + 464 * MIB  # the whole batch needs about 640 MiB, and 64 MiB stay free
    fits.trainer(guard_callback(budget=budget, record=record), max_steps=2).fit(module, data)
    plan = next(event for event in load_record(record).events if event["event"] == "plan")["plan"]
    settings, requested = plan["settings"], plan["requested"]
    assert settings.pop("micro_batch") < 2048
    assert requested.pop("micro_batch") is None
    assert settings == requested
    assert all(step["micro_batches"] > 1 for step in load_record(record).steps)
    with pytest.raises(CannotFit, match="minus"):
        fits.trainer(guard_callback(budget=rss_bytes() + 64 * MIB)).fit(module, data)


def test_what_cant_be_guarded_is_refused(fits: Fits) -> None:
    from .modules import Classifier, loader

    class Backward(Classifier):
        def backward(self, loss: Tensor) -> None:
            loss.backward()

    class Iterating(Classifier):
        def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
            return next(dataloader_iter)

    for module, message in (
        (Backward(), "Backward overrides backward, which can't be guarded"),
        (Iterating(), r"training_step\(dataloader_iter\) can't be guarded"),
    ):
        with pytest.raises(UsageError, match=message):
            fits.trainer(guard_callback()).fit(module, loader())
    for checkpoint in (5, "."):
        with pytest.raises(UsageError, match="is no file; name one"):
            guard_callback(checkpoint=checkpoint)
    with pytest.raises(UsageError, match="GuardCallback got 'scaler', which the Trainer sets itself"):
        guard_callback(scaler=None)
    for options, message in (({"cooldown_steps": 0}, "cooldown_steps is 0"), ({"budget": "8 gigs"}, "is not a size")):
        with pytest.raises(UsageError, match=message):
            guard_callback(**options)
    with pytest.raises(UsageError, match="the Trainer has two GuardCallbacks; keep one of them"):
        fits.trainer(guard_callback(), callbacks=[guard_callback()]).fit(Classifier(), loader())


@pytest.mark.parametrize("name", ["DeepSpeedStrategy", "FSDPStrategy", "XLAStrategy", "ModelParallelStrategy"])
def test_strategies_that_cant_be_guarded_are_refused(fits: Fits, name: str) -> None:
    from .modules import Classifier

    trainer = fits.trainer()
    base = type(trainer.strategy)
    trainer.strategy.__class__ = type(name, (base,), {})
    with pytest.raises(UsageError, match=f"training with {name} can't be guarded, because"):
        guard_callback().on_fit_start(trainer, Classifier())


def test_an_old_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lightning").mkdir()
    (tmp_path / "lightning/__init__.py").write_text("__version__ = '2.4.1'\n")
    source = str(Path(oomph.__file__).parents[1])
    process = run_python("-c", "import oomph.integrations.lightning", paths=[str(tmp_path), source])
    assert "lightning 2.4.1 is installed, and oomph needs 2.5 or newer; run `pip install -U" in process.stderr


def run_python(*arguments: str, paths: Any = (), folder: Any = REPO, **environment: Any) -> Any:
    folders = paths or [str(Path(oomph.__file__).parents[1]), str(REPO), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_a_limit_that_kills_the_trainer_splits_batches(tmp_path: Path) -> None:
    malloc = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(MIB)}
    start = functools.partial(run_python, "-m", "tests.integrations.lightning_process", **malloc)
    with ThreadPoolExecutor() as pool:
        plain, guarded = pool.map(lambda kind: start(kind, str(tmp_path)), ("plain", "guarded"))
    assert plain.returncode != 0
    assert "can't allocate memory" in plain.stderr
    assert guarded.returncode == 0, guarded.stderr
    micro_batches = [step["micro_batches"] for step in load_record(tmp_path / "guarded.jsonl").steps]
    assert len(micro_batches) == 3
    assert min(micro_batches) > 1


@pytest.mark.large
def test_two_ranks_retry_together_and_save_once(tmp_path: Path) -> None:
    for kind in ("plain", "errors", "stop", "resume"):
        process = run_python("-m", "tests.integrations.lightning_ranks", kind, str(tmp_path))
        assert process.returncode == 0, process.stderr
    plain, disturbed, resumed = (torch.load(tmp_path / f"{kind}.pt") for kind in ("plain", "errors", "resume"))
    for name, tensor in plain.items():
        torch.testing.assert_close(disturbed[name], tensor, rtol=1e-12, atol=1e-14)
        assert torch.equal(resumed[name], tensor)


def test_the_example_trains(tmp_path: Path) -> None:
    script = REPO / "examples/lightning/train.py"
    process = run_python("-m", "tests.integrations.run_script", str(script), str(tmp_path))
    assert process.returncode == 0, process.stderr
    assert "micro-batches" in process.stdout
