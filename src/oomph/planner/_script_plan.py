"""Plans of unmodified training scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import CannotFit, UsageError
from ..machine import Target
from ..script import ScriptRun, TrainingLoop
from ._largest_batch import plan_largest_batch
from ._make_plan import plan_fastest
from ._plan import Plan
from ._request import GOALS, PlanRequest, read_budget
from ._script_predictor import MODEL_SETTINGS, ScriptPredictor, changes_model, loop_settings

_PERMISSIONS = ("precision",)
_WORTH_EDITING = 1.05  # times as fast


def plan_script(  # noqa: PLR0913  options by name
    run: ScriptRun,
    target: Target,
    *,
    budget: int | str | None = None,
    goal: str = "fastest",
    allow: tuple[str, ...] = (),
    max_slowdown: float | None = None,
    max_seconds: float = 120,
    progress: Callable[[int], object] | None = None,
    file: str = "plan.json",
) -> Plan:
    """Plan how to train with a script on a device, which need not be present.

    The script is executed once for each of several settings, up to its third optimizer step.

    Args:
        run: the script with its own settings.
        target: the device.
        budget: bytes of the device as nvidia-smi shows them, or a text such as "8GiB"; by default all of its memory.
        goal: "fastest", or "largest-batch" for the largest batch of the DataLoader that runs in one piece.
        allow: what may change although it affects results: "precision".
        max_slowdown: how many times longer a step may take than without a limit of memory.
        max_seconds: time limit of each execution.
        progress: called with the number of executions so far.
        file: where the script will load the plan from.

    Raises:
        CannotFit: nothing fits; the message says what would.
        UsageError: an argument is wrong, or the script gave no training step.
    """
    for name in allow:
        if name not in _PERMISSIONS:
            raise UsageError(
                f"a plan can't change the {name} of a script", f"allow {' or '.join(_PERMISSIONS)}, or nothing"
            )
    available = read_budget(budget, target)
    predictor = ScriptPredictor(run, target, max_seconds, progress)
    loop = predictor.loop
    request = PlanRequest(
        loop_settings(loop), target, available, allow, max_slowdown, fixed=_fixed(loop), equal_parts=True
    )
    try:
        plan = _planned(goal, request, predictor, Path(run.path).name)
    except CannotFit as error:
        if loop.has_loader:
            raise
        why = f"{error.why}; the batch can't be split, because it doesn't come from a torch DataLoader"
        raise CannotFit(why, f"use one, or a smaller batch; or {error.fix}") from None
    return replace(plan, notes=(*_notes(loop), *plan.notes), steps=tuple(_steps(plan, loop, file)))


def _planned(goal: str, request: PlanRequest, predictor: ScriptPredictor, name: str) -> Plan:
    if goal == GOALS[0]:
        return _fastest(request, predictor)
    _check_batch_can_change(name, predictor.loop)
    return plan_largest_batch(request, predictor)


def _fastest(request: PlanRequest, predictor: ScriptPredictor) -> Plan:
    """Return the fastest settings; the script's own if they fit and others are hardly faster."""
    try:
        plan = plan_fastest(request, predictor)
    except UsageError as error:  # a model may not run when its modules are recomputed
        plan = plan_fastest(replace(request, fixed=request.fixed | {"checkpointing", "offload"}), predictor)
        plan = replace(plan, notes=(f"Nothing is recomputed or offloaded, because then {error.why}.",))
    requested, planned = plan.requested_need, plan.planned_need
    is_faster = planned.seconds.value * _WORTH_EDITING < requested.seconds.value
    if requested.device.high > request.budget or is_faster:
        return plan
    return replace(plan, settings=plan.requested, planned_need=requested, changes=())


def _fixed(loop: TrainingLoop) -> frozenset[str]:
    """Return the settings that the script's loop can't have changed."""
    fixed = {"size"}
    if not loop.has_loader:
        fixed.add("micro_batch")
    if loop.trained != 1:
        fixed.update(MODEL_SETTINGS)
    return frozenset(fixed)


def _notes(loop: TrainingLoop) -> Iterator[str]:
    yield f"Captured: {loop.describe()}."
    if not loop.has_loader:
        yield "The batches don't come from a torch DataLoader, so the plan doesn't split them."
    if loop.trained != 1:
        yield f"The script calls {loop.trained} models that it trains: only its batch and the allocator were planned."


def _check_batch_can_change(name: str, loop: TrainingLoop) -> None:
    if not loop.has_loader:
        raise UsageError(
            f"{name} gets its batches without a torch DataLoader, so they can't be made larger",
            "plan with --goal fastest",
        )
    if loop.micro_batches > 1:
        raise UsageError(
            f"{name} accumulates {loop.micro_batches} batches for an update, so its batch is not in one piece",
            "plan with --goal fastest",
        )


def _steps(plan: Plan, loop: TrainingLoop, file: str) -> Iterator[str]:
    requested, planned = plan.requested, plan.settings
    if planned.allocator != requested.allocator:
        yield "Set the environment variable PYTORCH_ALLOC_CONF=expandable_segments:True."
    if changes_model(requested, planned):
        yield (
            f"After the optimizer is built, add these lines, with the names of your model ({loop.models[0].name}) and "
            f"optimizer ({loop.optimizers[0]}):\n"
            "import oomph\n"
            f'plan = oomph.Plan.load("{file}")\n'
            "plan.apply(model, optimizer)"
        )
    batches = len(planned.micro_batch_sizes)
    if max(planned.micro_batch_sizes) != max(requested.micro_batch_sizes):
        yield f"Set the DataLoader's batch_size to {max(planned.micro_batch_sizes)}."
    if batches != len(requested.micro_batch_sizes):
        yield (
            f"Call optimizer.step() and optimizer.zero_grad() only after every {batches} batches, and divide the loss "
            f"by {batches}."
        )
