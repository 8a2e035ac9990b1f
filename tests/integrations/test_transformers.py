"""The Trainer of transformers, run for real. `make test-frameworks` installs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
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

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
transformers: Any = pytest.importorskip("transformers")
REPO = Path(__file__).parents[2]


@dataclass
class Outcome:
    """What a run left behind."""

    trainer: Any
    weights: dict[str, Tensor]
    logs: list[dict[str, float]]
    calls: list[tuple[str, int]]
    raised: int


class Runs:
    """Trains with a Trainer class, out-of-memory errors and options, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, trainer_class: type[Any], model: nn.Module, data: Any, **options: Any) -> Any:
        from .trainers import arguments

        args = arguments(self.folder, **options.pop("args", {}))
        return trainer_class(model=model, args=args, train_dataset=data, **options)

    def train(
        self,
        trainer_class: type[Any],
        model: nn.Module,
        data: Any,
        *,
        failing: Any = (),
        resume: bool = False,
        **options: Any,
    ) -> Outcome:
        from .trainers import Calls, logs

        forwards, callback = Forwards(failing), Calls()
        handle = hooked(model).register_forward_pre_hook(forwards)
        trainer = self.build(trainer_class, model, data, callbacks=[callback], **options)
        trainer.train(resume_from_checkpoint=resume or None)
        handle.remove()
        weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        return Outcome(trainer, weights, logs(trainer), callback.calls, forwards.raised)


def hooked(model: Any) -> nn.Module:
    """Return the module at which memory runs out."""
    module: nn.Module = model.transformer.h[1] if hasattr(model, "transformer") else model.body[2]
    return module


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    # It would keep the precision of the test before.
    pytest.importorskip("accelerate").state.AcceleratorState._reset_state(reset_partial_state=True)
    torch.set_num_threads(1)  # the tensors are tiny, and other tests run beside these
    return Runs(tmp_path / "out")


def guarded_trainer() -> type[Any]:
    from oomph.integrations.transformers import GuardedTrainer

    return GuardedTrainer


def assert_close(outcome: Outcome, expected: Outcome, tolerance: float) -> None:
    for name, tensor in expected.weights.items():
        torch.testing.assert_close(outcome.weights[name], tensor, rtol=tolerance, atol=tolerance)
    assert outcome.calls == expected.calls
    assert outcome.trainer.state.global_step == expected.trainer.state.global_step
    assert len(outcome.logs) == len(expected.logs)
    for line, expected_line in zip(outcome.logs, expected.logs, strict=True):
        assert line == pytest.approx(expected_line, rel=max(tolerance, 1e-6))


def test_an_undisturbed_run_is_that_of_the_trainer_bit_for_bit(runs: Runs) -> None:
    from .trainers import language_model, texts

    plain = runs.train(transformers.Trainer, language_model(dropout=0.1), texts())
    guarded = runs.train(guarded_trainer(), language_model(dropout=0.1), texts())
    assert all(torch.equal(guarded.weights[name], tensor) for name, tensor in plain.weights.items())
    assert (guarded.logs, guarded.calls) == (plain.logs, plain.calls)


@pytest.mark.parametrize(
    ("args", "dtype", "tolerance"),
    [
        ({}, torch.float64, 1e-6),  # transformers computes the loss in single precision
        ({"per_device_train_batch_size": 5, "gradient_accumulation_steps": 3}, torch.float64, 1e-6),
        ({"label_smoothing_factor": 0.1}, torch.float32, 1e-6),
        ({"bf16": True}, torch.float32, 5e-3),
        ({"gradient_checkpointing": True}, torch.float64, 1e-6),
        ({"optim": "adamw_torch", "adam_epsilon": 1e-3, "lr_scheduler_type": "cosine"}, torch.float64, 1e-6),
    ],
    ids=["accumulated", "uneven", "label smoothing", "bf16", "checkpointing", "adam"],
)
def test_five_updates_with_errors_are_those_of_the_undisturbed_run(
    runs: Runs, args: Mapping[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    from .trainers import language_model, texts

    plain = runs.train(transformers.Trainer, language_model(dtype=dtype), texts(), args=args)
    guarded = runs.train(guarded_trainer(), language_model(dtype=dtype), texts(), args=args, failing=(2, 5, 12))
    assert guarded.raised == 3
    assert_close(guarded, plain, tolerance)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_mean_over_samples_is_weighted_as_the_trainer_does(runs: Runs, steps: int) -> None:
    """The last batch of an epoch has two samples, the last update fewer batches; the Trainer averages batches."""
    from .trainers import points, regressor

    args = {"gradient_accumulation_steps": steps, "max_steps": -1, "num_train_epochs": 2}
    plain = runs.train(transformers.Trainer, regressor(), points(), args=args)
    guarded = runs.train(guarded_trainer(), regressor(), points(), args=args, failing=(2, 5, 9))
    assert guarded.raised == 3
    assert_close(guarded, plain, 1e-12)


def test_losses_of_the_users_own_are_exact(runs: Runs) -> None:
    from .trainers import language_model, texts

    def loss_function(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits = outputs.logits[:, :-1].reshape(-1, 50)
        return nn.functional.cross_entropy(logits, labels[:, 1:].reshape(-1), reduction="sum") / num_items_in_batch

    class Squared(transformers.Trainer):  # type: ignore[misc]
        loss_is_scaled_for_ga = False

        def compute_loss(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
            del num_items_in_batch
            loss: Tensor = model(**inputs).logits.square().mean()
            return loss

    class MeanOfLabels(transformers.Trainer):  # type: ignore[misc]
        """As many are written: neither is the number of items used, nor said that it isn't."""

        def compute_loss(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
            del num_items_in_batch
            labels = inputs.pop("labels")[:, 1:].reshape(-1)
            return nn.functional.cross_entropy(model(**inputs).logits[:, :-1].reshape(-1, 50), labels)

    from oomph.integrations.transformers import guarded

    with_function: dict[str, Any] = {"compute_loss_func": loss_function}
    for trainer_class, options in ((transformers.Trainer, with_function), (Squared, {}), (MeanOfLabels, {})):
        plain = runs.train(trainer_class, language_model(), texts(), **options)
        disturbed = runs.train(guarded(trainer_class), language_model(), texts(), failing=(2, 5), **options)
        assert disturbed.raised == 2
        assert_close(disturbed, plain, 1e-10)


def test_a_compiled_model_is_split(runs: Runs) -> None:
    from oomph.integrations.transformers import guarded

    from .trainers import points, regressor

    class Failing(transformers.Trainer):  # type: ignore[misc]
        forwards = Forwards()

        def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(model, *args, **kwargs)
            self.forwards(model)
            return loss

    args = {"torch_compile": True, "torch_compile_backend": "eager"}
    plain = runs.train(Failing, regressor(), points(), args=args)
    Failing.forwards = Forwards([2, 5])
    disturbed = runs.train(guarded(Failing), regressor(), points(), args=args)
    assert Failing.forwards.raised == 2
    assert_close(disturbed, plain, 1e-12)


def test_a_loss_function_that_logs_and_counts_does_so_once_per_batch(runs: Runs) -> None:
    """trl's Trainers collect metrics by the mode of the model; the check of the loss runs in eval mode."""
    from collections import defaultdict

    from oomph.integrations.transformers import guarded

    from .trainers import points, regressor

    class Collecting(transformers.Trainer):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._metrics: Any = {"train": defaultdict(list), "eval": defaultdict(list)}
            self.total, self.sums, self.losses = 0, {"loss": torch.zeros(())}, list[Tensor]()

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(model, inputs, *args, **kwargs)
            value = loss[0] if isinstance(loss, tuple) else loss
            mode = "train" if model.training else "eval"
            self._metrics[mode]["loss"].append(value.item())
            self._metrics[mode]["samples"] = [self.total]
            self.total += len(inputs["x"])
            self.sums["loss"] += value.detach().float()
            self.losses.append(value.detach())
            self.lazy = getattr(self, "lazy", 0) + 1
            if mode == "train":
                self.log({"direct": value.item()})
            else:
                self.log({"eval_direct": value.item()})
            return loss

    args = {"eval_strategy": "steps", "eval_steps": 2}
    options: dict[str, Any] = {"args": args, "eval_dataset": points(6)}
    plain = runs.train(Collecting, regressor(), points(), **options)
    undisturbed = runs.train(guarded(Collecting), regressor(), points(), **options)
    assert (undisturbed.logs, undisturbed.calls) == (plain.logs, plain.calls)
    for name in ("_metrics", "total", "sums", "lazy", "losses"):
        assert getattr(undisturbed.trainer, name) == getattr(plain.trainer, name)
    # A whole batch that failed is not counted, only its halves.
    failed = runs.train(guarded(Collecting), regressor(), points(), failing=(2,), **options)
    assert failed.trainer.total == plain.trainer.total


def test_a_loss_that_would_change_is_not_split(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    from oomph.integrations.transformers import guarded

    from .trainers import points, regressor

    class Largest(transformers.Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
            del num_items_in_batch
            loss: Tensor = model(**inputs)["logits"].square().max()
            return loss

    plain = runs.train(Largest, regressor(), points())
    disturbed = runs.train(guarded(Largest), regressor(), points(), failing=(3,))
    assert disturbed.raised == 1
    assert_close(disturbed, plain, 0)
    assert "it is not a mean over samples. Steps are not split" in caplog.text


def test_overrides_of_other_trainer_classes_run(runs: Runs) -> None:
    from oomph.integrations.transformers import GuardedTrainer, guarded

    from .trainers import points, regressor

    class Counting(transformers.Seq2SeqTrainer):  # type: ignore[misc]
        steps = 0

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            self.steps += 1
            return super().training_step(*args, **kwargs)

    cls = guarded(Counting)
    assert (cls.__name__, guarded(Counting), guarded(cls)) == ("GuardedCounting", cls, cls)
    assert guarded(transformers.Trainer) is GuardedTrainer
    seq2seq = transformers.Seq2SeqTrainingArguments
    args = {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    trainer = cls(
        model=regressor(), args=seq2seq(output_dir=str(runs.folder), save_strategy="no", **args), train_dataset=points()
    )
    trainer.train()
    assert trainer.steps == 2
    with pytest.raises(UsageError, match="is not a Trainer class; pass a class, such as Seq2SeqTrainer"):
        guarded(int)


def test_a_training_step_that_replaces_the_trainers_is_named(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    from oomph.integrations.transformers import guarded

    from .trainers import points, regressor

    class Replaced(transformers.Trainer):  # type: ignore[misc]
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            del num_items_in_batch
            loss = model(**inputs)["loss"]
            loss.backward()
            return loss.detach()

    runs.train(guarded(Replaced), regressor(), points())
    assert "Nothing was guarded: training_step of GuardedReplaced doesn't call super().training_step()" in caplog.text


def test_the_record_shows_errors_and_growth_and_ends(runs: Runs, tmp_path: Path) -> None:
    from .trainers import points, regressor

    path = tmp_path / "run.jsonl"
    args = {"max_steps": 12, "gradient_accumulation_steps": 1}
    options: dict[str, Any] = {"args": args, "record": path, "guard_options": {"cooldown_steps": 3}}
    outcome = runs.train(guarded_trainer(), regressor(), points(), failing=(2,), **options)
    record = load_record(path)
    assert record.has_ended
    assert [step["micro_batches"] for step in record.steps] == [1, 2, 2, 2, *[1] * 8]
    assert [step["loss"] for step in record.steps] == pytest.approx([line["loss"] for line in outcome.logs[:-1]], 1e-3)
    assert [event["event"] for event in record.events] == ["oom", "end"]
    assert record.samples


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(1, id="first update", marks=pytest.mark.large),
        pytest.param(4, id="mid-update"),
        pytest.param(7, id="new epoch"),
        pytest.param(9, id="mid-epoch", marks=pytest.mark.large),
    ],
)
def test_the_emergency_checkpoint_continues_bit_for_bit(runs: Runs, failing: int) -> None:
    """Each epoch has three updates of two batches; dropout and the order of the samples depend on random states."""
    from .trainers import language_model, texts

    def model() -> nn.Module:
        return language_model(dropout=0.1)

    args = {"num_train_epochs": 2, "max_steps": -1}
    plain = runs.train(transformers.Trainer, model(), texts(), args=args)
    stopped = model()
    hooked(stopped).register_forward_pre_hook(Forwards([failing], from_then_on=True))
    trainer = runs.build(guarded_trainer(), stopped, texts(), args=args)
    with pytest.raises(RetriesExhausted) as error:
        trainer.train()
    updates = (failing - 1) // 2
    assert error.value.checkpoint == str(runs.folder / f"checkpoint-{updates}")
    for trainer_class in (transformers.Trainer, guarded_trainer()):
        resumed = runs.train(trainer_class, model(), texts(), args=args, resume=True)
        assert resumed.trainer.state.global_step == 6
        assert all(torch.equal(resumed.weights[name], tensor) for name, tensor in plain.weights.items())


def test_a_signal_saves_the_last_update(runs: Runs, tmp_path: Path) -> None:
    from .trainers import language_model, texts

    class Interrupt(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            del args, control, kwargs
            if state.global_step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    record = tmp_path / "run.jsonl"
    options = {"signals": True, "record": record, "callbacks": [Interrupt()]}
    trainer = runs.build(guarded_trainer(), language_model(), texts(), **options)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert [path.name for path in runs.folder.iterdir()] == ["checkpoint-2"]
    assert [event["event"] for event in load_record(record).events] == ["stopped", "error", "end"]
    plain = runs.train(transformers.Trainer, language_model(), texts())
    resumed = runs.train(guarded_trainer(), language_model(), texts(), resume=True)
    assert all(torch.equal(resumed.weights[name], tensor) for name, tensor in plain.weights.items())


def gpt(runs: Runs, trainer_class: type[Any] = transformers.Trainer, **options: Any) -> Any:
    """Return the Trainer of a language model with 16 sequences of 64 tokens in a batch."""
    config = transformers.GPT2Config(
        vocab_size=1000, n_positions=64, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    )
    rows = [{"input_ids": torch.arange(64), "labels": torch.arange(64)} for _ in range(32)]
    args = {"per_device_train_batch_size": 16, "optim": "adamw_torch", **options.pop("args", {})}
    return runs.build(trainer_class, transformers.GPT2LMHeadModel(config), rows, args=args, **options)


@pytest.mark.parametrize("args", [{"gradient_accumulation_steps": 1}, {"bf16": True}], ids=["whole", "accumulated"])
def test_a_trainer_is_predicted_as_a_job_written_by_hand(runs: Runs, args: Mapping[str, Any]) -> None:
    trainer = gpt(runs, args=dict(args))
    before = torch.get_rng_state()
    prediction = oomph.predict(trainer, target="H200")
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.optimizer is None
    assert trainer.accelerator._dataloaders == []
    batch = {name: torch.arange(64).repeat(16, 1) for name in ("input_ids", "labels")}
    optimizer = torch.optim.AdamW(trainer.model.parameters())
    job = oomph.Job.of(trainer.model, batch, optimizer=optimizer, step=lambda model, batch: model(**batch).loss)
    accumulated = {"batch": 32, "micro_batch": 16, "precision": "amp-bf16"}
    settings = oomph.Settings(allocator="default", **(accumulated if "bf16" in args else {"batch": 16}))
    by_hand = oomph.predict(job, settings, "H200")
    assert prediction.allocated.value == pytest.approx(by_hand.allocated.value, rel=0.01)


def test_gradient_checkpointing_is_predicted_and_not_enabled(runs: Runs) -> None:
    trainer = gpt(runs, args={"gradient_checkpointing": True})
    saved = (
        oomph.predict(gpt(runs), target="H200").allocated.value - oomph.predict(trainer, target="H200").allocated.value
    )
    assert saved > 20 * MIB
    assert not trainer.model.is_gradient_checkpointing
    assert oomph.plan(trainer, target="H200").settings.batch == 32


def test_only_a_trainer_with_data_is_predicted(runs: Runs) -> None:
    from .trainers import regressor

    with pytest.raises(UsageError, match=r"a GPT2LMHeadModel can't be predicted alone; pass the Trainer"):
        oomph.predict(gpt(runs).model, target="H200")
    with pytest.raises(UsageError, match="the Trainer has no train_dataset"):
        oomph.predict(runs.build(transformers.Trainer, regressor(), None), target="H200")


def test_a_budget_plans_micro_batches_and_nothing_else(runs: Runs, tmp_path: Path) -> None:
    from oomph.machine import rss_bytes

    budget = rss_bytes() + 300 * MIB  # all sixteen sequences may need up to 320 MiB, and 64 MiB stay free
    record = tmp_path / "run.jsonl"
    trainer = gpt(runs, guarded_trainer(), args={"max_steps": 2}, budget=budget, record=record)
    trainer.train()
    plan = next(event for event in load_record(record).events if event["event"] == "plan")["plan"]
    settings, requested = plan["settings"], plan["requested"]
    assert settings.pop("micro_batch") < requested.pop("micro_batch") == 16
    assert settings == requested
    assert all(step["micro_batches"] > 1 for step in load_record(record).steps)
    assert trainer.state.global_step == 2
    with pytest.raises(CannotFit, match="minus"):
        gpt(runs, guarded_trainer(), budget=rss_bytes() + 64 * MIB).train()


def refused(change: Callable[[Any], object] = lambda trainer: None, **args: Any) -> Callable[[Runs], object]:
    def train(runs: Runs) -> None:
        from .trainers import points, regressor

        trainer = runs.build(guarded_trainer(), regressor(), points(), args=args)
        change(trainer)
        trainer.train()

    return train


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (refused(auto_find_batch_size=True), "starts again with a smaller batch and more updates"),
        (refused(lambda trainer: setattr(trainer.args, "_n_gpu", 2)), "2 GPUs with DataParallel, which can't be guard"),
        (refused(lambda trainer: setattr(trainer.args, "optim", "adalomo")), "adalomo updates weights during backward"),
    ],
)
def test_what_cant_be_guarded_is_refused(runs: Runs, train: Callable[[Runs], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train(runs)


def test_only_classes_can_be_guarded() -> None:
    from oomph.integrations.transformers import guarded

    for value in (3, "Trainer", int):
        with pytest.raises(UsageError, match="is not a Trainer class"):
            guarded(value)  # type: ignore[arg-type]


def test_unknown_options_are_refused(runs: Runs) -> None:
    from .trainers import points, regressor

    with pytest.raises(UsageError, match="guard_options contains 'scaler', which the Trainer sets itself"):
        runs.build(guarded_trainer(), regressor(), points(), guard_options={"scaler": None})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guard_options": {"micro_batch": 0}}, "micro_batch is 0; it must be a whole number"),
        ({"guard_options": {"split": "pascal"}}, "'pascal'"),
        ({"guard_options": {"reduction": "median"}}, "reduction is 'median'"),
        ({"budget": "8 gigs"}, "'8 gigs' is not a size"),
        ({"record": 5}, 'record is 5; name a file, such as "run.jsonl"'),
    ],
)
def test_wrong_values_are_refused_before_training(runs: Runs, options: Mapping[str, Any], message: str) -> None:
    from .trainers import points, regressor

    with pytest.raises(UsageError, match=message):
        runs.build(guarded_trainer(), regressor(), points(), **options)


def test_an_old_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers/__init__.py").write_text("__version__ = '4.56.2'\n")
    source = str(Path(oomph.__file__).parents[1])
    process = run_python("-c", "import oomph.integrations.transformers", paths=[str(tmp_path), source])
    assert "transformers 4.56.2 is installed, and oomph needs 4.57 or newer; run `pip install -U" in process.stderr


def run_python(*arguments: str, paths: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    with start_python(*arguments, paths=paths) as process:
        output, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def start_python(*arguments: str, paths: Sequence[str] = (), **environment: str) -> subprocess.Popen[str]:
    folders = paths or [str(Path(oomph.__file__).parents[1]), *filter(None, sys.path)]
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_a_limit_that_kills_the_trainer_splits_batches(tmp_path: Path) -> None:
    malloc = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(MIB)}

    def start(kind: str) -> subprocess.Popen[str]:
        return start_python("-m", "tests.integrations.trainer_process", kind, str(tmp_path), **malloc)

    with start("plain") as plain, start("guarded") as guarded:
        _, plain_errors = plain.communicate(timeout=120)
        _, errors = guarded.communicate(timeout=120)
    assert plain.returncode != 0
    assert "can't allocate memory" in plain_errors
    assert guarded.returncode == 0, errors
    micro_batches = json.loads((tmp_path / "guarded.json").read_text())
    assert len(micro_batches) == 3
    assert min(micro_batches) > 1


@pytest.mark.large
def test_two_ranks_retry_together_and_save_once(tmp_path: Path) -> None:
    for kind in ("plain", "errors", "stop", "resume"):
        ranks = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29541")
        process = run_python(*ranks, "-m", "tests.integrations.trainer_ranks", kind, str(tmp_path))
        assert process.returncode == 0, process.stderr
    plain, disturbed, resumed = (torch.load(tmp_path / f"{kind}.pt") for kind in ("plain", "errors", "resume"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["checkpoint-2"]
    for name, tensor in plain.items():
        torch.testing.assert_close(disturbed[name], tensor, rtol=1e-12, atol=1e-14)
        assert torch.equal(resumed[name], tensor)


def test_the_example_trains(tmp_path: Path) -> None:
    script = REPO / "examples/transformers/train.py"
    process = run_python("-m", "tests.integrations.run_script", str(script), str(tmp_path))
    assert process.returncode == 0, process.stderr
    assert "micro-batches" in process.stdout
