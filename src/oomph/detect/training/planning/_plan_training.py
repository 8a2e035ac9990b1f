"""The memory plan of a run, made before anything is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ....distributed import SINGLE, DistContext
from ....errors import CannotFit, UsageError
from ....machine import Target, find_target, rss_bytes
from ....planner import (
    JobPredictor,
    Plan,
    PlanRequest,
    StepProfile,
    largest_fitting,
    plan_fastest,
)
from ....prediction import Prediction, predict, rss_growth_after_planning, update_bytes
from ....recovery import BUCKET_BYTES
from ....settings import Settings
from ....units import MIB, format_size
from ...checkpoint import read_weights
from ...dataset import IndexedSplit, samples_per_epoch, tiling
from ...model import MAX_STRIDE, round_to_stride, yolov5
from .._config import AUTO_BATCH, PRECISIONS, TrainConfig
from .._fake_quantization import fake_quantized_job
from ._extra_memory import ExtraMemory, extra_memory
from ._job import detection_job, with_teacher

_BF16_CAPABILITY = 8  # compute capability from which bf16 is fast (Ampere)
_GUARD_HEADROOM = 64 * MIB  # of host memory
_HEAP_FRAGMENTATION = 0.35  # fraction of a step's temporary memory that the heap loses to fragmentation
_FRAGMENTING_STEPS = 20  # after which it has lost that much
_LOADER_BATCHES = 4  # that the loader keeps in memory
_MAX_BOXES_PER_IMAGE = 300
_MIN_MICRO_BATCH = 2  # BatchNorm needs two samples


@dataclass(frozen=True)
class Placement:
    """Where a run executes: device, allocator settings and ranks."""

    device: torch.device
    allocator: str
    dist: DistContext = SINGLE


def fast_precision(device: torch.device) -> str:
    """Return the fast precision of a device: bf16 from Ampere on, fp16 before, fp32 on the CPU.

    torch reports bf16 as supported on older GPUs too, where it is slow.
    """
    if device.type != "cuda":
        return "fp32"
    return "amp-bf16" if torch.cuda.get_device_capability(device)[0] >= _BF16_CAPABILITY else "amp-fp16"


def plan_training(
    config: TrainConfig,
    classes: int,
    split: IndexedSplit,
    placement: Placement,
    progress: Callable[[int], object] | None = None,
) -> Plan:
    """Plan the largest micro-batches that fit, and further changes where none do.

    Args:
        config: the run, for one rank.
        classes: number of classes.
        split: the training split.
        placement: device, allocator and ranks.
        progress: called with the number of settings predicted so far; each takes a second or more.

    Raises:
        CannotFit: nothing that is allowed fits.
    """
    device, world_size = placement.device, placement.dist.world_size
    precision = config.precision or fast_precision(device)
    requested = _requested_settings(config, precision, device, placement.allocator)
    predictor = _run_predictor(config, classes, split, (target_of(device), world_size), requested, progress)
    budget, reserved = _budget_and_reserve(config, predictor)
    if config.plan is not None:
        return _load_plan(config.plan, requested, budget)
    if config.batch == AUTO_BATCH:
        requested = _with_largest_batch(requested, budget, predictor, predictor.samples)
    request = PlanRequest(
        settings=replace(requested, batch=min(requested.batch, predictor.samples)),  # no batch is larger
        target=predictor.target,
        budget=budget,
        allow=config.allow,
        min_micro_batch=_MIN_MICRO_BATCH,
        fixed=frozenset({"allocator", "memory_format", "optimizer", "loss_chunks", "offload"}),
    )
    try:
        plan = plan_fastest(request, predictor)
    except CannotFit as error:
        if not reserved:
            raise
        total = f"{format_size(budget + reserved)} minus {format_size(reserved)} for loaded batches and the guard"
        raise CannotFit(f"{error.why} ({total})", error.fix) from None
    settings = replace(
        plan.settings,
        batch=requested.batch,
        optimizer=optimizer_implementation(plan.settings.precision, device),
    )
    return replace(plan, requested=requested, settings=settings, reserved=reserved)


def predict_training(config: TrainConfig, classes: int, split: IndexedSplit, target: Target) -> Prediction:
    """Predict what a run needs on a target if no batch is split.

    Args:
        config: the run.
        classes: number of classes.
        split: the training split.
        target: where it would run; it doesn't have to be here.
    """
    device = torch.device("cpu" if target.is_cpu else "cuda")
    fast = "amp-bf16" if target.capability[0] >= _BF16_CAPABILITY else "amp-fp16"
    precision = config.precision or ("fp32" if target.is_cpu else fast)
    settings = _requested_settings(config, precision, device, "default")
    return _run_predictor(config, classes, split, (target, 1), settings).predict(settings)


def _requested_settings(config: TrainConfig, precision: str, device: torch.device, allocator: str) -> Settings:
    return Settings(
        batch=max(config.batch, 1),
        size=round_to_stride(config.imgsz),
        precision=precision,
        memory_format="channels_last",
        allocator=allocator,
        optimizer=optimizer_implementation(precision, device),
    )


def _run_predictor(
    config: TrainConfig,
    classes: int,
    split: IndexedSplit,
    placement: tuple[Target, int],
    requested: Settings,
    progress: Callable[[int], object] | None = None,
) -> _RunPredictor:
    """Return the predictor of a run on one of several ranks, each on a target."""
    target, world_size = placement
    samples = max(samples_per_epoch(split, tiling(config.tiles, config.imgsz)), 1)
    boxes = min(4 * max(len(split.labels.boxes) / samples, 1), _MAX_BOXES_PER_IMAGE)
    job = detection_job(config.cfg, classes, boxes, config.hyp, config.freeze, config.widths)
    if config.fake_quantize:
        job = fake_quantized_job(job)
    if config.teacher is not None:
        teacher = read_weights(config.teacher)
        job = with_teacher(job, lambda: yolov5(teacher.size, teacher.classes, widths=teacher.widths), config.distill)
    rank_samples = math.ceil(samples / world_size)
    device = torch.device("cpu" if target.is_cpu else "cuda")
    return _RunPredictor(
        traces=JobPredictor(job, target, progress),
        extra=extra_memory(config, classes, requested.optimizer, device),
        samples=rank_samples,
        batch=min(requested.batch, rank_samples),
        steps=config.epochs * math.ceil(rank_samples / requested.batch),
    )


def _load_plan(path: Path, requested: Settings, budget: int) -> Plan:
    """Return the plan of a file.

    Raises:
        UsageError: it is a plan for another batch, size or precision, or needs more memory than there is.
    """
    plan = Plan.load(path)
    planned, need = plan.settings, plan.planned_need.device.high
    if (planned.batch, planned.size) != (requested.batch, requested.size):
        raise UsageError(
            f"the plan in {path} is for batch {planned.batch} at {planned.size}, and the run has batch "
            f"{requested.batch} at {requested.size}",
            "plan again, or omit --plan",
        )
    if planned.precision not in PRECISIONS:
        raise UsageError(
            f"the plan in {path} has precision {planned.precision}", f"plan with one of {', '.join(PRECISIONS)}"
        )
    if need > budget:
        raise UsageError(
            f"the plan in {path} may need up to {format_size(need)}, and there are {format_size(budget)}",
            "plan again with this budget, or omit --plan",
        )
    return plan


def _budget_and_reserve(config: TrainConfig, predictor: _RunPredictor) -> tuple[int, int]:
    """Return the budget of a step, and the memory that is reserved on the CPU for the guard and the loader."""
    target = predictor.target
    total = min(config.budget or target.memory, target.memory)
    if not target.is_cpu:
        return total, 0
    batch_bytes = predictor.batch * 3 * round_to_stride(config.imgsz) ** 2
    reserved = _GUARD_HEADROOM + _LOADER_BATCHES * batch_bytes
    return total - reserved, reserved


def _with_largest_batch(requested: Settings, budget: int, predictor: _RunPredictor, samples: int) -> Settings:
    """Return settings with the largest batch that fits: at least two images, at most all samples."""

    def need(batch: int) -> float:
        return predictor.predict(replace(requested, batch=batch)).device.high

    return replace(requested, batch=min(max(largest_fitting(need, budget, samples), _MIN_MICRO_BATCH), samples))


@dataclass
class _RunPredictor:
    """Predicts the memory that settings need in this process.

    Attributes:
        traces: predicts the training step alone.
        extra: memory beyond the predicted step.
        samples: samples of an epoch on this rank.
        batch: samples that the loader holds; no batch is larger.
        steps: number of steps of the run.
    """

    traces: JobPredictor
    extra: ExtraMemory
    samples: int
    batch: int
    steps: int

    @property
    def target(self) -> Target:
        """Where it runs."""
        return self.traces.target

    def profile(self, settings: Settings) -> StepProfile:
        """Return the profile of one step."""
        return self.traces.profile(settings)

    def predict(self, settings: Settings) -> Prediction:
        """Return the prediction for settings, with what the predicted step doesn't have.

        On a GPU that is the rest of the batch and the next one, as bytes. On the CPU it is the memory that the process
        uses already, and heap fragmentation.
        """
        prediction = self.extra.added_to(self.traces.predict(settings))
        if not self.target.is_cpu:
            micro_batch = settings.micro_batch or settings.batch
            input_bytes = (2 * settings.batch - micro_batch) * 3 * _image_side(settings) ** 2
            return prediction.with_memory(lambda estimate: estimate.plus(input_bytes))
        temporary = max(dict(prediction.phases).values()) - update_bytes(prediction)
        fragmentation = int(_HEAP_FRAGMENTATION * min(self.steps / _FRAGMENTING_STEPS, 1) * temporary)
        total = rss_growth_after_planning(prediction.allocated).plus(rss_bytes() + fragmentation)
        return replace(prediction, device=total, host=total)


def _image_side(settings: Settings) -> int:
    return int(settings.size) if isinstance(settings.size, int) else MAX_STRIDE


def per_rank_config(config: TrainConfig, classes: int, placement: Placement) -> TrainConfig:
    """Return the config that one rank is planned for: its part of the batch and of the memory.

    Ranks on the CPU share its memory. On a GPU, DistributedDataParallel holds a copy of all gradients and the guard two
    buckets for the exchange; on the CPU the guard holds as much of a bucket as is used.

    Raises:
        UsageError: the batch can't be divided evenly.
    """
    dist, device = placement.dist, placement.device
    if not dist.is_distributed:
        return config
    with torch.device("meta"):
        model = config.build_network(classes)
    gradients = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    memory = target_of(device).memory
    if device.type == "cuda":
        available, exchange = memory, gradients + 2 * BUCKET_BYTES
    else:
        available, exchange = memory // dist.local_world_size, min(gradients, BUCKET_BYTES)
    budget = min(config.budget or available, available) - exchange
    return replace(config, batch=dist.per_rank_batch(config.batch), budget=budget)


def resolve_budget(config: TrainConfig, device: torch.device) -> int | None:
    """Return the budget in bytes of the device, or of this process on the CPU; None if it is unlimited."""
    if config.budget_above_start is None:
        return config.budget
    if device.type == "cuda":
        return target_of(device).outside[1] + config.budget_above_start
    # torch imports much more when it creates its first optimizer and its first fake tensor.
    predict(detection_job("n", 1), Settings(batch=2, size=MAX_STRIDE), "cpu")
    return rss_bytes() + config.budget_above_start


def optimizer_implementation(precision: str, device: torch.device) -> str:
    """Return how weights are updated: "fused" (one kernel) on a GPU, else "given".

    With fp16 a fused kernel checks for overflow itself, so the number of skipped steps would be unknown.
    """
    return "fused" if device.type == "cuda" and precision != "amp-fp16" else "given"


def target_of(device: torch.device) -> Target:
    """Return the prediction target of a device, with the memory that other processes leave."""
    if device.type != "cuda":
        return find_target("cpu")
    target = find_target(torch.cuda.get_device_name(device))
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    return target.with_free_memory(free + target.outside[0])  # the CUDA context of this process exists by now


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {
        "requested": vars(plan.requested),
        "settings": vars(plan.settings),
        "budget": plan.budget,
        "reserved": plan.reserved,
        "requested_need": plan.requested_need.device.value,
        "planned_need": plan.planned_need.device.value,
        "changes": [vars(change) for change in plan.changes],
    }
