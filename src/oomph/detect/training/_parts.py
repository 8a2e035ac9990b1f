"""The parts of a training run: model, loss, optimizer, EMA, guard, loaders and schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ... import patches
from ...data import Loader
from ...distributed import DistContext
from ...monitor import Recorder
from ...planner import Plan
from ...recovery import Guard, guard
from ..checkpoint import load_weights, read_weights
from ..dataset import Dataset, IndexedSplit
from ..model import (
    AnchorCheck,
    DetectionLoss,
    DistilledDetector,
    DistillLoss,
    LossGains,
    Yolov5,
    downscale_batch,
    round_to_stride,
)
from ._config import TrainConfig
from ._ema import Ema
from ._fake_quantization import fake_quantize
from ._loaders import build_train_loader, build_val_loader, limit_torch_threads
from ._optimizer import build_optimizer, freeze
from ._progress import ProgressCallback
from ._run_dir import RunDirectory
from ._schedule import Schedule
from ._teacher import count_parameters, read_teacher, take_anchors
from ._train_loss import TrainLoss

_RANK_TIMEOUT_SECONDS = 60.0  # scoring many images may keep a rank from responding for a while


@dataclass(frozen=True)
class RunContext:
    """Inputs of a training run and its execution environment.

    Attributes:
        config: the resolved configuration.
        dataset: the data.yaml.
        train_split, val_split: the images.
        plan: the memory plan of one rank.
        device: where this rank trains.
        dist: the ranks.
        run_dir: where results are written.
        progress: progress callbacks.
    """

    config: TrainConfig
    dataset: Dataset
    train_split: IndexedSplit
    val_split: IndexedSplit
    plan: Plan
    device: torch.device
    dist: DistContext
    run_dir: RunDirectory
    progress: ProgressCallback

    @property
    def batch(self) -> int:
        """Images per iteration on this rank."""
        return self.dist.per_rank_batch(self.config.batch)


@dataclass(frozen=True)
class TrainingParts:
    """The parts of a training run, except for the guard, which needs the trainer's checkpoint function.

    Attributes:
        model: the network, with its teacher if there is one, in DistributedDataParallel if there are several ranks.
        loss, optimizer, ema: of the network without the teacher.
        train_loader, val_loader: of this rank.
        schedule: of the run.
    """

    model: nn.Module
    loss: TrainLoss
    optimizer: Optimizer
    ema: Ema
    train_loader: Loader
    val_loader: Loader
    schedule: Schedule


def build_parts(context: RunContext, anchors: AnchorCheck) -> TrainingParts:
    """Build the parts of a run; the weights depend on the seed."""
    config, settings, device, dist = context.config, context.plan.settings, context.device, context.dist
    torch.manual_seed(config.seed)
    network = _to_device(_build_network(context, anchors), device)
    hyp = config.hyp
    loss = DetectionLoss(network, hyp.gains, round_to_stride(config.imgsz), hyp.anchor_t, hyp.label_smoothing)
    model = network if config.teacher is None else _add_teacher(context, network, loss.gains)
    fused = settings.optimizer == "fused" or None
    optimizer = build_optimizer(network, hyp, config.batch, fused=fused)
    ema = Ema(network)
    patches.apply_checkpointing(model, settings.checkpointing)  # after the EMA, which is a copy that needs none
    limit_torch_threads(config, device)
    train_loader = build_train_loader(config, context.train_split, device, dist, context.batch)
    return TrainingParts(
        model=DistributedDataParallel(model) if dist.is_distributed else model,
        loss=TrainLoss(loss, device, dist, distills=config.teacher is not None),
        optimizer=optimizer,
        ema=ema,
        train_loader=train_loader,
        val_loader=build_val_loader(config, context.val_split, dist, settings.micro_batch or context.batch),
        schedule=Schedule(hyp, config.batch, len(train_loader), config.epochs),
    )


def build_guard(
    context: RunContext, parts: TrainingParts, recorder: Recorder, checkpoint: Callable[[Any], object]
) -> Guard:
    """Build the guard; `checkpoint` is called when it stops the run."""
    config, settings = context.config, context.plan.settings
    return guard(
        model=parts.model,
        optimizer=parts.optimizer,
        loss=parts.loss,
        split="yolo",
        micro_batch=settings.micro_batch,
        clip_grad_norm=config.hyp.clip_grad_norm,
        ema=parts.ema,
        precision=settings.precision if settings.precision.startswith("amp") else None,
        budget=config.budget,
        allow=config.allow,
        resize=downscale_batch if "size" in config.allow else None,
        checkpoint=checkpoint,
        recorder=recorder,
        rank_timeout=_RANK_TIMEOUT_SECONDS,
    )


def _build_network(context: RunContext, anchors: AnchorCheck) -> Yolov5:
    config, log = context.config, context.progress.log
    fitted = anchors.fitted and config.teacher is None  # a student has the anchors of its teacher
    network = config.build_network(len(context.dataset.names), anchors.anchors if fitted else None)
    if config.weights is not None:
        log(load_weights(network, read_weights(config.weights)) or f"initial weights: {config.weights}")
    elif fitted:
        log(
            f"the anchors match {anchors.recall:.1%} of the boxes: new ones were fitted to the data and match "
            f"{anchors.fitted_recall:.1%}"
        )
    if config.freeze:
        log(f"{config.freeze} layers are frozen: {freeze(network, config.freeze):,} parameters")
    if config.fake_quantize:
        fake_quantize(network)
    return network


def _add_teacher(context: RunContext, student: Yolov5, gains: LossGains) -> nn.Module:
    """Return the student with its teacher, whose anchors it takes."""
    config, log = context.config, context.progress.log
    assert config.teacher is not None  # noqa: S101  for the type checker
    teacher = _to_device(read_teacher(config.teacher, context.dataset.names).build(), context.device)
    sizes = [count_parameters(network) for network in (student, teacher)]
    log(f"teacher: {teacher.architecture.label} with {sizes[1]:,} parameters, the student has {sizes[0]:,}")
    if sizes[1] < sizes[0]:
        log("the teacher is smaller than the student")
    if take_anchors(student, teacher):
        log("the student gets the teacher's anchors: outputs can't be compared with others")
    return DistilledDetector(student, teacher, DistillLoss(config.distill, gains, config.distill_gain))


def _to_device(network: Yolov5, device: torch.device) -> Yolov5:
    return network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
