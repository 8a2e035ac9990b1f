"""The micro-batch of live objects within a budget: the only change of a plan that keeps everything as it is."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters import FrameworkJob
from ..errors import CannotFit
from ..machine import Target, find_target, rss_bytes
from ..monitor import Recorder
from ..planner import JobPredictor, Plan, PlanRequest, plan_fastest
from ..prediction import Prediction, rss_growth_after_planning
from ..recovery import record_plan
from ..settings import Settings
from ..units import MIB, format_size, parse_size

_log = logging.getLogger("oomph")
_FIXED = frozenset(field.name for field in dataclasses.fields(Settings)) - {"micro_batch"}
_HEADROOM = 64 * MIB  # of RAM: the guard keeps it free


def plan_model(
    described: FrameworkJob,
    device: torch.device,
    budget: int | str,
    model: nn.Module,
    *,
    accumulates: bool,
    held: int = 0,
) -> Plan:
    """Plan the micro-batch of a model as `plan_micro_batch` does.

    Args:
        described: what is trained, and how.
        device: where it is trained in this process.
        budget: memory that may be used.
        model: the model, which is in memory already.
        accumulates: an update has several batches, so that the guard holds the gradients of earlier ones.
        held: further bytes that are held beside the step.
    """
    if accumulates:
        held += sum(param.nbytes for param in model.parameters() if param.requires_grad)
    return plan_micro_batch(described, device, budget, live=[*model.parameters(), *model.buffers()], held=held)


def with_plan(options: Mapping[str, Any], plan: Plan, recorder: Recorder | None) -> dict[str, Any]:
    """Write a plan into the Record, and return options of `oomph.guard` that carry it out.

    A micro-batch among the options stays.
    """
    if recorder is not None:
        record_plan(recorder, plan)
    micro_batch = options.get("micro_batch") or plan.settings.micro_batch
    return {**options, "budget": plan.budget + plan.reserved, "micro_batch": micro_batch}


def plan_micro_batch(
    described: FrameworkJob, device: torch.device, budget: int | str, *, live: Iterable[Tensor], held: int = 0
) -> Plan:
    """Plan the micro-batch with which a framework's object trains within a budget; nothing else changes.

    Args:
        described: what is trained, and how.
        device: where it is trained in this process.
        budget: bytes of the device as nvidia-smi shows them, or a text such as "8GiB"; on the CPU, of this process.
        live: tensors that the job consists of and that are in memory already, such as the model's parameters.
        held: bytes that the guard holds beside the step, such as gradients of earlier batches.

    Returns:
        The plan. `budget` plus `reserved` is the whole budget.

    Raises:
        CannotFit: not even the smallest micro-batch fits.
    """
    target = _target_of(device)
    total = min(parse_size(budget), target.memory)
    reserved = held + (_HEADROOM if target.is_cpu else 0)
    if total <= reserved:
        raise CannotFit(
            f"the budget is {format_size(total)}, and the guard needs {format_size(reserved)} beside the step itself",
            "raise the budget",
        )
    live_bytes = sum(_sizes(live, device).values())
    predictor = _LivePredictor(described.job, target, live_bytes=live_bytes)
    request = PlanRequest(described.settings, target, total - reserved, fixed=_FIXED)
    try:
        plan = plan_fastest(request, predictor)
    except CannotFit as error:
        raise CannotFit(f"{error.why} ({format_size(total)} minus {format_size(reserved)})", error.fix) from None
    for change in plan.changes:
        _log.info("Plan: %s, because %s.", change.what, change.why)
    return replace(plan, reserved=reserved)


@dataclass
class _LivePredictor(JobPredictor):
    """Predicts the RSS of this process on the CPU, which contains its imports, its data and the live tensors."""

    live_bytes: int = 0

    def predict(self, settings: Settings) -> Prediction:
        """Return the prediction for settings."""
        prediction = super().predict(settings)
        if not self.target.is_cpu:
            return prediction
        total = rss_growth_after_planning(prediction.allocated).plus(rss_bytes() - self.live_bytes)
        return replace(prediction, device=total, host=total)


def _target_of(device: torch.device) -> Target:
    if device.type != "cuda":
        return find_target("cpu")
    target = find_target(torch.cuda.get_device_name(device))
    # The CUDA context of this process exists, and what its allocator reserved is used again.
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    return target.with_free_memory(free + target.outside[0])


def _sizes(tensors: Iterable[Tensor], device: torch.device) -> dict[int, int]:
    """Return the bytes of each storage on a device once, by its address."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor.device.type == device.type]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}
