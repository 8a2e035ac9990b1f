"""accelerate: `guard`, training steps of prepared objects that are repeated with less memory instead of failing.

    from oomph.integrations.accelerate import guard

    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    with guard(accelerator, model=model, optimizer=optimizer, scheduler=scheduler, loss=loss) as guarded:
        for batch in loader:
            with accelerator.accumulate(model):
                guarded.step(batch)

It needs accelerate 1.0 or newer, which is not imported here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..adapters import FrameworkJob
from ..batch import count_samples
from ..errors import MissingFile, UsageError
from ..job import Job
from ..losses import LossSum
from ..monitor import Recorder, watch
from ..planner import Plan
from ..recovery import Guard, StepReport
from ..recovery import guard as guard_training
from ..settings import Settings, environment_allocator
from ._accelerator import check_accelerator, check_prepared
from ._guard_options import check_budget_and_record, check_options
from ._micro_batch_plan import plan_model, with_plan
from ._versions import check_version

__all__ = ["AcceleratedGuard", "describe", "guard"]

_POSITION = "position.json"
_PAIR = 2  # inputs and targets
_OF_THE_LOSS = ("loss", "forward", "samples")


def guard(
    accelerator: Any,
    *,
    model: nn.Module,
    optimizer: Any,
    record: str | os.PathLike[str] | None = None,
    budget: int | str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Any,
) -> AcceleratedGuard:
    """Guard the training of objects that an Accelerator prepared.

    Args:
        accelerator: the Accelerator.
        model: the prepared model.
        optimizer: the prepared optimizer.
        record: write a Record of the run to this file, for `oomph watch`, `oomph report` and `oomph explain`.
        budget: bytes of the device that may be used, or a text such as "8GiB"; on the CPU, of this process. The
            micro-batch is planned from the first batch.
        checkpoint: the folder for `accelerator.save_state` when the guard gives up or is asked to stop.
        options: further options of `oomph.guard`: loss, forward, scheduler, clip_grad_norm, reduction, micro_batch …

    Raises:
        UsageError: the setup can't be guarded, or an object isn't prepared.
    """
    package = sys.modules.get("accelerate")
    check_version("accelerate", getattr(package, "__version__", "0"), "1.0")
    check_accelerator(accelerator)
    optimizers = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not all(hasattr(each, "gradient_state") for each in optimizers):
        raise UsageError("the optimizer isn't prepared", "pass what accelerator.prepare returned")
    check_prepared(accelerator, model)
    for name in ("plan", "recorder", "scaler"):
        if options.get(name) is not None:
            raise UsageError(f"{name}= is set by the Accelerator or by record= and budget=", f"omit {name}")
    check_options(
        options, got="guard got", owner="accelerate", allowed=tuple(inspect.signature(guard_training).parameters)
    )
    check_budget_and_record(budget, record)
    clip = options.get("clip_grad_norm")
    if clip is not None and not callable(clip) and accelerator.scaler is None:  # it would unscale gradients twice
        options["clip_grad_norm"] = functools.partial(accelerator.clip_grad_norm_, max_norm=clip)
    options.update(model=model, optimizer=optimizer, device=accelerator.device)
    return AcceleratedGuard(accelerator, options, record, budget, checkpoint)


class AcceleratedGuard:
    """Runs guarded steps of prepared objects; created by `guard`. As a context manager it is closed at the end.

    Attributes:
        batches: number of batches in the updates so far, also those before the run was resumed.
    """

    def __init__(
        self,
        accelerator: Any,
        options: dict[str, Any],
        record: str | os.PathLike[str] | None,
        budget: int | str | None,
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        self._accelerator, self._options, self._budget = accelerator, options, budget
        self._folder = None if checkpoint is None else Path(checkpoint)
        self._stack = contextlib.ExitStack()
        self._recorder: Recorder | None = None
        if record is not None and accelerator.is_main_process:
            self._recorder = self._stack.enter_context(watch(record))
        self._guard: Guard | None = None
        self._stopping: contextlib.ExitStack | None = None
        self.batches = 0
        self._batches_before = 0  # of the run that was resumed
        self._updates_by_itself = True
        self._was_update = False  # the last batch ended an update

    def step(self, batch: Any, *, forward: Callable[..., Any] | None = None) -> StepReport:
        """Train on a batch; inside of `accelerator.accumulate`, update when accelerate would.

        Raises:
            CannotFit: not even the smallest micro-batch fits into the budget.
            RetriesExhausted: the batch doesn't fit; the last update was saved to `checkpoint=`.
        """
        guard = self._begin(batch, updates=True)
        return guard.step(batch, forward=forward)

    def backward(self, batch: Any, *, forward: Callable[..., Any] | None = None) -> StepReport:
        """Compute the gradients of a batch, weighted as `accelerator.backward` does; clip and update as before.

        Raises:
            CannotFit: not even the smallest micro-batch fits into the budget.
            RetriesExhausted: the batch doesn't fit; the last update was saved to `checkpoint=`.
        """
        guard = self._begin(batch, updates=False)
        scale, sync = 1 / self._accelerator.gradient_accumulation_steps, self._accelerator.sync_gradients
        return guard.backward(batch, forward=forward, scale=scale, sync=sync)

    def _begin(self, batch: Any, *, updates: bool) -> Guard:
        """Return the guard, and count the batches of the update before this one."""
        guard = self._guard or self._start_guard(batch)
        if self._was_update:
            self.batches = self._batches_before + guard.steps
        self._updates_by_itself, self._was_update = updates, self._accelerator.sync_gradients
        return guard

    def evaluate(
        self, loader: Iterable[Any], function: Callable[[nn.Module, Any], Any], *, model: nn.Module | None = None
    ) -> list[Any]:
        """Call a function for each batch, as `Guard.evaluate` does, after the first step."""
        if self._guard is None:
            raise UsageError("nothing was trained yet", "evaluate after the first step, or without the guard")
        return self._guard.evaluate(loader, function, model=model)

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """On Ctrl-C and SIGTERM, finish the batch, save to `checkpoint=` and stop."""
        with contextlib.ExitStack() as stack:
            if self._guard is not None:
                stack.enter_context(self._guard.signals())
            self._stopping = stack
            try:
                yield
            finally:
                self._stopping = None

    def resume(self, folder: str | os.PathLike[str]) -> int:
        """Load the state that was saved when a run ended, and return the number of batches that were trained before.

        Raises:
            MissingFile: the folder has no such state.
        """
        path = Path(folder) / _POSITION
        if not path.is_file():
            raise MissingFile(f"there is no {str(path)!r}", "name the folder that was passed as checkpoint=")
        self._accelerator.load_state(str(folder))
        self.batches = self._batches_before = int(json.loads(path.read_text())["batches"])
        return self.batches

    def close(self) -> None:
        """End the Record, and tell other ranks that this one ended normally."""
        self._stack.close()

    def __enter__(self) -> AcceleratedGuard:  # noqa: PYI034  Self came with Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def _start_guard(self, batch: Any) -> Guard:
        options = dict(self._options)
        if self._budget is not None:
            options = with_plan(options, self._plan(batch, self._budget), self._recorder)
        save = None if self._folder is None else lambda _: self._save()
        guard = guard_training(**options, checkpoint=save, recorder=self._recorder)
        self._stack.callback(guard.close)
        if self._stopping is not None:
            self._stopping.enter_context(guard.signals())
        self._guard = guard
        return guard

    def _save(self) -> Path:
        """Save the state after the last update and where it was; gradients accumulated since then are dropped."""
        accelerator, folder, guard = self._accelerator, self._folder, self._guard
        assert folder is not None  # noqa: S101  it is called only with one
        assert guard is not None  # noqa: S101  it is called by the guard
        if self._updates_by_itself and guard.accumulation.pending is None:
            self.batches = self._batches_before + guard.steps
        config = accelerator.project_configuration
        before = config.automatic_checkpoint_naming, accelerator.step
        # Ranks would wait for each other to choose a name, and only the first one saves. An update starts at 0.
        config.automatic_checkpoint_naming, accelerator.step = False, 0
        try:
            accelerator.save_state(str(folder))
        finally:
            config.automatic_checkpoint_naming, accelerator.step = before
        (folder / _POSITION).write_text(json.dumps({"batches": self.batches}))
        return folder

    def _plan(self, batch: Any, budget: int | str) -> Plan:
        accelerator, options = self._accelerator, self._options
        parts: dict[str, Any] = {name: options.get(name) for name in ("model", "optimizer", *_OF_THE_LOSS)}
        model, accumulates = accelerator.unwrap_model(parts["model"]), accelerator.gradient_accumulation_steps > 1
        described = describe(accelerator, batch, **parts)
        return plan_model(described, accelerator.device, budget, model, accumulates=accumulates)


def describe(  # noqa: PLR0913  options by name
    accelerator: Any,
    batch: Any,
    *,
    model: nn.Module,
    optimizer: Any,
    loss: Callable[[Any, Any], Tensor] | None = None,
    forward: Callable[..., Any] | None = None,
    samples: Callable[[Any], int] | None = None,
) -> FrameworkJob:
    """Return what is trained, and how: `oomph.predict(describe(accelerator, batch, model=model, optimizer=optimizer))`.

    Args:
        accelerator: the Accelerator; its precision and accumulation are predicted.
        batch: a batch of the prepared loader.
        model: the prepared model.
        optimizer: the prepared optimizer, or a list of them.
        loss: as for `guard`.
        forward: as for `guard`.
        samples: as for `guard`.
    """
    count = count_samples(batch, samples)
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    job = Job.of(
        accelerator.unwrap_model(model),
        batch,
        loss=loss if forward is None else None,
        optimizer=[getattr(each, "optimizer", each) for each in optimizers],  # without accelerate's wrapper
        step=None if loss is not None and forward is None else functools.partial(_loss_of, loss, forward),
        samples=count,
    )
    steps = accelerator.gradient_accumulation_steps
    settings = Settings(
        batch=count * steps,
        micro_batch=count if steps > 1 else None,
        precision={"bf16": "amp-bf16", "fp16": "amp-fp16"}.get(accelerator.mixed_precision, "fp32"),
        allocator=environment_allocator(),
    )
    return FrameworkJob(job, settings)


def _loss_of(loss: Any, forward: Any, model: nn.Module, batch: Any) -> Tensor:
    """Return the loss of a batch as `oomph.guard` computes it with a forward, or with the model's own loss."""
    outputs = model(**batch) if forward is None else forward(model, batch)
    if forward is None:
        outputs = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
    elif loss is not None:
        outputs = loss(outputs, batch[1] if isinstance(batch, (tuple, list)) and len(batch) == _PAIR else batch)
    result: Tensor = outputs.total / outputs.count if isinstance(outputs, LossSum) else outputs
    return result
