"""timm's loop, run for real. `make test-frameworks` installs it."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
timm: Any = pytest.importorskip("timm")
for _name in ("loss", "models", "optim", "utils"):
    pytest.importorskip(f"timm.{_name}")
REPO = Path(__file__).parents[2]


@dataclass
class Setup:
    """The objects of timm's train.py."""

    task: Any
    optimizer: torch.optim.Optimizer
    scheduler: Any
    loss_scaler: Any = None
    amp_autocast: Callable[[], Any] = contextlib.nullcontext
    clip_grad: float | None = None
    clip_mode: str = "norm"
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def weights(self) -> list[Tensor]:
        return [*self.task.state_dict().values()]


def create(*, dtype: torch.dtype = torch.float64, ema: bool = True, **options: Any) -> Setup:
    """Create a task of a small ViT with an EMA in its warmup, and a schedule by updates."""
    from timm.models.vision_transformer import VisionTransformer
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.task import ClassificationTask

    torch.manual_seed(0)
    model = VisionTransformer(
        img_size=16, patch_size=8, num_classes=4, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2.0
    ).to(dtype)
    model.pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    task = ClassificationTask(model, timm.loss.LabelSmoothingCrossEntropy(0.1), verbose=False)
    if ema:
        task.setup_ema(decay=0.999, use_warmup=True)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.1, momentum=0.9)
    scheduler = CosineLRScheduler(optimizer, t_initial=10, t_in_epochs=False)
    return Setup(task, optimizer, scheduler, **options)


def batches(count: int = 5, size: int = 6, dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, size, 3, 16, 16, generator=generator, dtype=dtype)
    return list(zip(images, torch.randint(0, 4, (count, size), generator=generator), strict=True))


def train_plainly(setup: Setup, data: list[tuple[Tensor, Tensor]], accum_steps: int = 1) -> None:
    """Train as timm's loop does."""
    from timm.utils import dispatch_clip_grad

    setup.task.get_trainable_module().train()
    num_updates = 0
    for number, (image, target) in enumerate(data):
        need_update = (number + 1) % accum_steps == 0 or number == len(data) - 1
        with setup.amp_autocast():
            loss = setup.task(image, target)["loss"]
        loss = loss / accum_steps
        parameters = list(setup.task.get_clip_parameters(exclude_head="agc" in setup.clip_mode))
        clip = {"clip_grad": setup.clip_grad, "clip_mode": setup.clip_mode, "parameters": parameters}
        if setup.loss_scaler is not None:
            setup.loss_scaler(loss, setup.optimizer, **clip, need_update=need_update)
        else:
            loss.backward()
            if need_update:
                if setup.clip_grad is not None:
                    dispatch_clip_grad(parameters, value=setup.clip_grad, mode=setup.clip_mode)
                setup.optimizer.step()
        setup.losses.append(loss.item())
        if need_update:
            num_updates += 1
            setup.optimizer.zero_grad()
            setup.task.update_ema(step=num_updates)
            setup.scheduler.step_update(num_updates=num_updates, metric=None)
            setup.rates.append(setup.optimizer.param_groups[0]["lr"])


def guard_of(setup: Setup, **options: Any) -> Any:
    from oomph.integrations.timm import guard

    return guard(
        setup.task, setup.optimizer, scheduler=setup.scheduler, loss_scaler=setup.loss_scaler,
        amp_autocast=setup.amp_autocast, clip_grad=setup.clip_grad, clip_mode=setup.clip_mode, **options,
    )  # fmt: skip


def train_guarded(
    setup: Setup, data: list[tuple[Tensor, Tensor]], accum_steps: int = 1, failing: Any = (), **options: Any
) -> Forwards:
    forwards = Forwards(failing)
    setup.task.trainable_module.blocks[1].register_forward_pre_hook(forwards)
    setup.task.get_trainable_module().train()
    with guard_of(setup, **options) as guarded:
        guarded.start_epoch(0, 0)
        for number, (image, target) in enumerate(data):
            need_update = (number + 1) % accum_steps == 0 or number == len(data) - 1
            report = guarded.step(image, target, need_update=need_update, accum_steps=accum_steps)
            setup.losses.append(report.loss.item())
            if need_update:
                setup.rates.append(setup.optimizer.param_groups[0]["lr"])
    return forwards


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # the tensors are tiny, and other tests run beside these


def test_undisturbed_steps_are_those_of_timm_bit_for_bit() -> None:
    plain, guarded = create(clip_grad=0.5), create(clip_grad=0.5)
    train_plainly(plain, batches(), 2)
    train_guarded(guarded, batches(), 2)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(guarded.weights, plain.weights, strict=True))
    assert (guarded.losses, guarded.rates) == (plain.losses, plain.rates)


@pytest.mark.parametrize("accum_steps", [1, 2, 5])
@pytest.mark.parametrize("clip_mode", ["norm", "value", "agc"])
def test_steps_with_errors_are_those_of_the_undisturbed_loop(accum_steps: int, clip_mode: str) -> None:
    """The task's state includes its EMA, whose decay depends on the step."""
    options: dict[str, Any] = {"clip_grad": 0.02, "clip_mode": clip_mode}
    plain, guarded = create(**options), create(**options)
    train_plainly(plain, batches(), accum_steps)
    assert train_guarded(guarded, batches(), accum_steps, failing=(2, 5, 9)).raised == 3
    for ours, theirs in zip(guarded.weights, plain.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert guarded.losses == pytest.approx(plain.losses, rel=1e-10)
    assert guarded.rates == plain.rates


def test_the_native_scaler_and_autocast() -> None:
    from timm.utils import NativeScaler

    def setup() -> Setup:
        autocast = functools.partial(torch.autocast, "cpu", torch.bfloat16)
        scaled = create(dtype=torch.float32, clip_grad=1.0, amp_autocast=autocast)
        scaled.loss_scaler = NativeScaler("cpu")
        scaled.loss_scaler._scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        return scaled

    plain, guarded, data = setup(), setup(), batches(dtype=torch.float32)
    train_plainly(plain, data, 2)
    assert train_guarded(guarded, data, 2, failing=(2, 5)).raised == 2
    assert guarded.loss_scaler.state_dict() == plain.loss_scaler.state_dict()
    assert plain.loss_scaler.state_dict()["scale"] > 64
    for ours, theirs in zip(guarded.weights, plain.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3)


def test_a_model_with_its_loss_and_ema() -> None:
    from oomph.integrations.timm import guard

    plain, bare = create(), create(ema=False)
    train_plainly(plain, batches())
    model, loss_fn = bare.task.trainable_module, bare.task.criterion
    model_ema = timm.utils.ModelEmaV3(model, decay=0.999, use_warmup=True)
    model.train()
    with guard(model, bare.optimizer, loss_fn=loss_fn, scheduler=bare.scheduler, model_ema=model_ema) as guarded:
        for image, target in batches():
            guarded.step(image, target)
    for ours, theirs in zip(
        model_ema.state_dict().values(), plain.task.trainable_module_ema.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_distilled_student_is_split() -> None:
    from timm.task import LogitDistillationTask

    def setup() -> Setup:
        plain = create(ema=False)
        teacher = create(ema=False).task.trainable_module
        plain.task = LogitDistillationTask(
            plain.task.trainable_module, teacher_model=teacher, criterion=nn.CrossEntropyLoss(), verbose=False
        )
        return plain

    plain, guarded = setup(), setup()
    train_plainly(plain, batches())
    assert train_guarded(guarded, batches(), failing=(2, 5)).raised == 2
    for ours, theirs in zip(guarded.weights, plain.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_distributed_task_is_trained_without_its_wrapper(tmp_path: Path) -> None:
    """One rank is enough to see that the guard averages gradients in the place of DistributedDataParallel."""
    plain, guarded = create(ema=False), create(ema=False)
    train_plainly(plain, batches(), 2)
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        guarded.task.prepare_distributed()
        wrapper = guarded.task.trainable_module
        wrapper.module.blocks[1].register_forward_pre_hook(Forwards([2, 5]))
        with guard_of(guarded) as steps:
            for number, (image, target) in enumerate(batches()):
                steps.step(image, target, need_update=bool(number % 2) or number == 4, accum_steps=2)
        assert guarded.task.trainable_module is wrapper
    finally:
        torch.distributed.destroy_process_group()
    for ours, theirs in zip(guarded.weights, plain.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_loss_over_pairs_of_samples_is_not_split(caplog: pytest.LogCaptureFixture) -> None:
    plain, guarded = create(), create()
    for setup in (plain, guarded):
        setup.task.criterion = timm.loss.JsdCrossEntropy(num_splits=3)
    train_plainly(plain, batches())
    assert train_guarded(guarded, batches(), failing=(2,)).raised == 1
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(guarded.weights, plain.weights, strict=True))
    assert "mean over samples" in caplog.text


def test_the_record_shows_errors_and_growth_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    train_guarded(create(), batches(12), failing=(2,), record=path, cooldown_steps=3)
    record = load_record(path)
    assert record.has_ended
    assert [step["micro_batches"] for step in record.steps] == [1, 2, 2, 2, *[1] * 8]
    assert [event["event"] for event in record.events] == ["oom", "end"]


def test_the_recovery_checkpoint_is_resumed_by_timm(tmp_path: Path) -> None:
    setup = create()
    saver = timm.utils.CheckpointSaver(
        setup.task.trainable_module, setup.optimizer, model_ema=setup.task.trainable_module_ema,
        checkpoint_dir=str(tmp_path), recovery_dir=str(tmp_path),
    )  # fmt: skip
    train_plainly(setup, batches(2))
    expected = [tensor.clone() for tensor in setup.weights]
    setup.task.trainable_module.register_forward_pre_hook(Forwards([3], from_then_on=True))
    guarded = guard_of(setup, saver=saver)
    guarded.start_epoch(3, 100)
    for number, (image, target) in enumerate(batches(3)):
        if number == 2:
            expected = [tensor.clone() for tensor in setup.weights]
        with contextlib.ExitStack() as stack:
            if number == 2:
                stack.enter_context(pytest.raises(RetriesExhausted, match=r"recovery-3-1\.pth\.tar"))
            guarded.step(image, target, need_update=number > 0, accum_steps=2)
    other = create()
    epoch = timm.models.resume_checkpoint(
        other.task.trainable_module, str(tmp_path / "recovery-3-1.pth.tar"), other.optimizer
    )
    assert epoch == 4  # timm goes on with the next epoch
    timm.models.load_checkpoint(
        other.task.trainable_module_ema.module, str(tmp_path / "recovery-3-1.pth.tar"), use_ema=True
    )
    assert all(torch.equal(ours, saved) for ours, saved in zip(other.weights, expected, strict=True))


def wide(size: int = 64) -> tuple[Setup, tuple[Tensor, Tensor]]:
    setup = create(dtype=torch.float32, ema=False)
    return setup, batches(1, size, torch.float32)[0]


@pytest.mark.parametrize("accum_steps", [1, 2])
def test_a_task_is_predicted_as_a_job_written_by_hand(accum_steps: int) -> None:
    from oomph.integrations.timm import describe

    setup, batch = wide()
    autocast = functools.partial(torch.autocast, "cpu", torch.bfloat16)
    described = describe(setup.task, setup.optimizer, batch, amp_autocast=autocast, accum_steps=accum_steps)
    prediction = oomph.predict(described, target="H200")
    job = oomph.Job.of(setup.task.trainable_module, batch, loss=setup.task.criterion, optimizer=setup.optimizer)
    accumulated: dict[str, Any] = {"batch": 128, "micro_batch": 64} if accum_steps == 2 else {"batch": 64}
    by_hand = oomph.predict(job, oomph.Settings(precision="amp-bf16", allocator="default", **accumulated), "H200")
    assert prediction.allocated.value == pytest.approx(by_hand.allocated.value, rel=0.02)


def test_a_budget_plans_micro_batches(tmp_path: Path) -> None:
    from oomph.machine import rss_bytes

    setup, batch = wide(4096)
    record = tmp_path / "run.jsonl"
    with guard_of(setup, budget=rss_bytes() + 190 * MIB, record=record) as guarded:
        guarded.step(*batch)
    plan = next(event for event in load_record(record).events if event["event"] == "plan")["plan"]
    assert plan["settings"]["micro_batch"] < 4096
    assert load_record(record).steps[0]["micro_batches"] > 1
    with pytest.raises(CannotFit, match="minus"):
        guard_of(setup, budget=rss_bytes() + 64 * MIB).step(*batch)


def test_what_cant_be_guarded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from oomph.integrations.timm import guard

    setup = create()
    model = setup.task.trainable_module
    with pytest.raises(UsageError, match="guard got a model without loss_fn; pass a task"):
        guard(model, setup.optimizer)
    with pytest.raises(UsageError, match="Adahessian needs second derivatives"):
        guard(setup.task, timm.optim.create_optimizer_v2(model, opt="adahessian"))
    with pytest.raises(UsageError, match="a loss_scaler of type ApexScaler can't be guarded; use NativeScaler"):
        guard(setup.task, setup.optimizer, loss_scaler=timm.utils.ApexScaler())
    with pytest.raises(UsageError, match=r"saver='out' can't save the run; pass timm's CheckpointSaver"):
        guard(setup.task, setup.optimizer, saver="out")
    for options, message in (({"micro_batch": 0}, "micro_batch is 0"), ({"budget": "8 gigs"}, "is not a size")):
        with pytest.raises(UsageError, match=message):
            guard(setup.task, setup.optimizer, **options)
    with pytest.raises(UsageError, match="guard got 'ema', which timm's loop sets itself"):
        guard(setup.task, setup.optimizer, ema=None)
    monkeypatch.setattr(timm, "__version__", "1.0.3")
    with pytest.raises(UsageError, match=r"timm 1\.0\.3 is installed, and oomph needs 1\.0\.20 or newer"):
        guard(setup.task, setup.optimizer)


def run_python(*arguments: str, **environment: str) -> Any:
    folders = [str(Path(oomph.__file__).parents[1]), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_a_limit_that_kills_the_loop_splits_batches(tmp_path: Path) -> None:
    malloc = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(MIB)}
    start = functools.partial(run_python, "-m", "tests.integrations.timm_process", **malloc)
    with ThreadPoolExecutor() as pool:
        plain, guarded = pool.map(lambda kind: start(kind, str(tmp_path)), ("plain", "guarded"))
    assert plain.returncode != 0
    assert "can't allocate memory" in plain.stderr
    assert guarded.returncode == 0, guarded.stderr
    micro_batches = [step["micro_batches"] for step in load_record(tmp_path / "guarded.jsonl").steps]
    assert min(micro_batches[1:]) > 1


def test_the_example_trains(tmp_path: Path) -> None:
    script = REPO / "examples/timm/train.py"
    process = run_python("-m", "tests.integrations.run_script", str(script), str(tmp_path))
    assert process.returncode == 0, process.stderr
    assert "micro-batches" in process.stdout
