"""The memory plan of a run, made before anything is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...distributed import SINGLE, DistContext
from ...errors import CannotFit
from ...job import Job
from ...machine import Target, find_target, rss_bytes, this_device
from ...planner import AllowedChanges, Plan, largest_batch
from ...planner import plan as plan_settings
from ...prediction import Prediction, predict
from ...recovery import BUCKET_BYTES
from ...settings import Settings
from ...units import MIB, format_size
from ..dataset import IndexedSplit, samples_per_epoch, tiling
from ..model import MAX_STRIDE, round_to_stride, yolov5
from ._config import AUTO_BATCH, TrainConfig
from ._extra_memory import ExtraMemory, extra_memory, update_bytes
from ._job import detection_job

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
    device = placement.device
    samples = max(samples_per_epoch(split, tiling(config.tiles, config.imgsz)), 1)
    rank_samples = math.ceil(samples / placement.dist.world_size)
    precision = config.precision or fast_precision(device)
    requested = Settings(
        batch=max(config.batch, 1),
        size=round_to_stride(config.imgsz),
        precision=precision,
        memory_format="channels_last",
        allocator=placement.allocator,
        optimizer=optimizer_implementation(precision, device),
    )
    boxes = max(len(split.labels.boxes) / samples, 1)
    need = _NeedPredictor(
        job=detection_job(config.cfg, classes, min(boxes * 4, _MAX_BOXES_PER_IMAGE), config.hyp, freeze=config.freeze),
        target=target_of(device),
        extra=extra_memory(config, classes, requested.optimizer, device),
        samples=rank_samples,
        steps=config.epochs * math.ceil(rank_samples / requested.batch),
        progress=progress,
    )
    budget, reserved = _budget_and_reserve(config, requested, need)
    if config.batch == AUTO_BATCH:
        requested = _with_largest_batch(requested, budget, need)
    changes = _allowed_changes(requested, config.allow, device)
    try:
        plan = plan_settings(requested, budget, need, _MIN_MICRO_BATCH, changes)
    except CannotFit as error:
        if not reserved:
            raise
        total = f"{format_size(budget + reserved)} minus {format_size(reserved)} for loaded batches and the guard"
        raise CannotFit(f"{error.why} ({total})", error.fix) from None
    settings = replace(plan.settings, optimizer=optimizer_implementation(plan.settings.precision, device))
    return replace(plan, settings=settings, reserved=reserved)


def _budget_and_reserve(config: TrainConfig, requested: Settings, need: _NeedPredictor) -> tuple[int, int]:
    """Return the budget of a step, and the memory that is reserved on the CPU for the guard and the loader."""
    target = need.target
    total = min(config.budget or target.memory, target.memory)
    if not target.is_cpu:
        return total, 0
    batch_bytes = min(requested.batch, need.samples) * 3 * round_to_stride(config.imgsz) ** 2
    reserved = _GUARD_HEADROOM + _LOADER_BATCHES * batch_bytes
    return total - reserved, reserved


def _with_largest_batch(requested: Settings, budget: int, need: _NeedPredictor) -> Settings:
    """Return settings with the largest batch that fits: at least two images, at most all samples."""
    all_samples = replace(requested, batch=need.samples)
    if need(all_samples).device.high <= budget:
        return all_samples
    try:
        largest = largest_batch(requested, budget, need)
    except CannotFit:
        largest = requested
    return replace(largest, batch=min(max(largest.batch, _MIN_MICRO_BATCH), need.samples))


@dataclass
class _NeedPredictor:
    """Predicts the memory that settings need in this process; each is predicted once.

    Attributes:
        job: the training step.
        target: where it runs.
        extra: memory beyond the predicted step.
        samples: samples of an epoch on this rank; no batch is larger.
        steps: number of steps of the run.
        progress: called with the number of predictions so far.
    """

    job: Job
    target: Target
    extra: ExtraMemory
    samples: int
    steps: int
    progress: Callable[[int], object] | None = None
    cache: dict[tuple[Settings, int], Prediction] = field(default_factory=dict)

    def __call__(self, settings: Settings) -> Prediction:
        """Return the prediction for settings."""
        # One full and one smaller micro-batch are enough: more of them change nothing.
        micro_batch = min(settings.micro_batch or settings.batch, self.samples)
        batch = min(settings.batch, 2 * micro_batch, self.samples)
        short = replace(settings, batch=batch, micro_batch=micro_batch if micro_batch < batch else None)
        full_batch = min(settings.batch, self.samples)
        if (short, full_batch) not in self.cache:
            prediction = self.extra.added_to(predict(self.job, short, self.target))
            input_bytes = (2 * full_batch - micro_batch) * 3 * _image_side(settings) ** 2
            self.cache[short, full_batch] = self._in_this_process(prediction, input_bytes)
            if self.progress is not None:
                self.progress(len(self.cache))
        return self.cache[short, full_batch]

    def _in_this_process(self, prediction: Prediction, input_bytes: int) -> Prediction:
        """Add what the predicted step doesn't have.

        On a GPU that is the rest of the batch and the next one, as bytes. On the CPU it is the memory that the process
        uses already, and heap fragmentation.
        """
        if not self.target.is_cpu:
            return prediction.with_memory(lambda estimate: estimate.plus(input_bytes))
        temporary = max(dict(prediction.phases).values()) - update_bytes(prediction)
        fragmentation = int(_HEAP_FRAGMENTATION * min(self.steps / _FRAGMENTING_STEPS, 1) * temporary)
        total = prediction.allocated.plus(rss_bytes() + fragmentation)
        return replace(prediction, device=total, host=total)


def _image_side(settings: Settings) -> int:
    return int(settings.size) if isinstance(settings.size, int) else MAX_STRIDE


def _allowed_changes(requested: Settings, allowed: tuple[str, ...], device: torch.device) -> AllowedChanges:
    """Return the changes that may be made in addition to micro-batches."""
    lower_precision = "amp-bf16" if device.type == "cpu" else fast_precision(device)
    side = _image_side(requested)
    return AllowedChanges(
        checkpointing=requested.checkpointing == "none",
        precision=None if requested.precision.startswith("amp") else lower_precision,
        image_sizes=tuple(range(side - MAX_STRIDE, max(side // 2, MAX_STRIDE) - 1, -MAX_STRIDE)),
        allowed=allowed,
    )


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
        model = yolov5(config.cfg, classes)
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
    """Return the prediction target of a device."""
    return find_target(this_device() if device.type == "cuda" else "cpu")


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
