"""Train a detector: read the data, plan the memory, run the trainer."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...charts import try_draw
from ...distributed import SINGLE, DistContext
from ...errors import CannotFit, UsageError
from ...patches import configure_allocator
from ...planner import Plan
from ...units import count_of
from .._device import find_device
from ..dataset import (
    Dataset,
    IndexedSplit,
    Split,
    as_single_cls,
    index_split,
    label_path,
    read_dataset,
    read_split,
    shared_images,
    suggest_tiles,
    tiling,
)
from ..model import MAX_STRIDE, check_anchors, round_to_stride
from ..plots import labels_plot
from ._config import TrainConfig
from ._parts import RunContext, build_parts
from ._progress import ProgressCallback, TrainResult
from ._run_dir import ReadOnlyRunDirectory, RunDirectory
from ._saved_config import CONFIG_FILE, SavedConfig, config_document
from ._settings_file import changed_settings, settings_text
from ._teacher import read_teacher, save_teacher, with_saved_teacher
from ._trainer import Trainer
from .planning import (
    Placement,
    per_rank_config,
    plan_document,
    plan_training,
    pruned_networks,
    resolve_budget,
    smaller_sizes,
)

_MAX_DOWNLOAD = 80  # characters of `download:` that are quoted

_log = logging.getLogger("oomph")


@dataclass(frozen=True)
class TrainingData:
    """A dataset with its indexed splits."""

    dataset: Dataset
    train: IndexedSplit
    val: IndexedSplit


def train(
    config: TrainConfig, progress: ProgressCallback, *, resume: bool = False, dist: DistContext = SINGLE
) -> TrainResult:
    """Train a detector, or resume the run in the config's folder from its last checkpoint.

    Args:
        config: the run; the same on every rank.
        progress: progress callbacks; silent on ranks other than the first.
        resume: continue the run in `config.run_dir`.
        dist: the ranks of `init_distributed`, which each call this.

    Raises:
        UsageError: data, weights or settings can't be used.
        CannotFit: nothing fits the budget.
        RankLost: another rank failed.
    """
    # The precision of a resumed run is the resolved one, not a setting of the user.
    if changed := changed_settings(replace(config, precision=None) if resume else config):
        progress.log(f"settings: {', '.join(changed)}")
    data = read_data(config, progress)
    if resume:
        config = with_saved_teacher(config)
    if config.teacher is not None:
        read_teacher(config.teacher, data.dataset.names)  # wrong ones are refused before anything is planned
    device = find_device(dist.device_name(config.device))
    if not config.tiles and (suggestion := suggest_tiles(data.train, config.imgsz)) is not None:
        progress.log(suggestion)
    # Before planning, so that the RSS that the plan starts from includes what drawing needs.
    labels = _draw_labels(data) if dist.is_main else None
    placement = Placement(device, configure_allocator(device), dist)
    requested, config = config, replace(config, budget=resolve_budget(config, device))
    plan = _plan(config, data, placement, progress)
    resolved = resolve(config, plan, dist.world_size)
    run_dir = RunDirectory(config.run_dir) if dist.is_main else ReadOnlyRunDirectory(config.run_dir, dist.rank)
    _save_inputs(run_dir, data, plan, dist)
    if labels is not None:
        run_dir.save_bytes("labels.png", labels)
    if not resume:
        saved = SavedConfig(requested, resolve(requested, plan, dist.world_size))
        run_dir.save_json(CONFIG_FILE, config_document(saved))
        run_dir.save_text("settings.yaml", settings_text(requested))
        if config.teacher is not None:
            save_teacher(run_dir, config.teacher, data.dataset.names)
    # A resumed run has its weights in the checkpoint; the initial ones may be gone.
    context = RunContext(
        config=replace(resolved, weights=None) if resume else resolved,
        dataset=data.dataset,
        train_split=data.train,
        val_split=data.val,
        plan=plan,
        device=device,
        dist=dist,
        run_dir=run_dir,
        progress=progress,
    )
    tiles = tiling(resolved.tiles, resolved.imgsz)
    sizes = data.train.labels.box_sizes(data.train.shapes, resolved.imgsz, tiles.side if tiles else math.inf)
    trainer = Trainer(context, build_parts(context, check_anchors(sizes, anchor_t=resolved.hyp.anchor_t)))
    if resume:
        trainer.resume()
    return trainer.run()


def read_data(config: TrainConfig, progress: ProgressCallback) -> TrainingData:
    """Read both splits, and report their issues."""
    dataset = read_dataset(config.data)
    splits = (
        read_split(dataset, "train", config.max_broken_fraction),
        read_split(dataset, "val", config.max_broken_fraction),
    )
    if config.single_cls:
        dataset, splits = as_single_cls(dataset, splits)
    train_split, val_split = (
        index_split(split, config.max_broken_fraction, partial(progress.on_progress, f"{split.name}: image headers"))
        for split in splits
    )
    _log_data(dataset, train_split, val_split, progress)
    _check_boxes(dataset, train_split, val_split, progress)
    _log_shared_images(splits, progress)
    if (imgsz := round_to_stride(config.imgsz)) != config.imgsz:
        progress.log(f"the image size {config.imgsz} is not a multiple of {MAX_STRIDE}: images are trained at {imgsz}")
    return TrainingData(dataset, train_split, val_split)


def _plan(config: TrainConfig, data: TrainingData, placement: Placement, progress: ProgressCallback) -> Plan:
    """Plan on every rank, and use the plan with the smallest micro-batches on all of them."""
    dist, classes = placement.dist, len(data.dataset.names)
    plans = dist.all_gather(
        lambda: _plan_or_advise(per_rank_config(config, classes, placement), data, placement, progress)
    )
    plan = min(plans, key=_size_of)
    if dist.is_distributed:
        progress.log(f"{dist.world_size} ranks with {plan.settings.batch} images of each batch; the plan is per rank")
    progress.on_plan(plan)
    return plan


def _plan_or_advise(config: TrainConfig, data: TrainingData, placement: Placement, progress: ProgressCallback) -> Plan:
    """Plan a run.

    Raises:
        CannotFit: nothing fits; it names the largest smaller network that would, if there is one.
    """

    def plan(config: TrainConfig) -> Plan | CannotFit:
        count = partial(progress.on_progress, "plan: settings predicted", total=None)
        try:
            return plan_training(config, len(data.dataset.names), data.train, placement, lambda done: count(done=done))
        except CannotFit as error:
            return error

    result = plan(config)
    if isinstance(result, Plan):
        return result
    if config.widths is None and config.plan is None:
        # Pruning needs trained weights.
        for network in smaller_sizes(config.cfg) if config.weights is None else pruned_networks(config.cfg):
            smaller = replace(config, cfg=network.cfg, widths=network.widths, weights=None)
            if isinstance(plan(smaller), Plan):
                raise CannotFit(result.why, f"{network.advice}; or {result.fix}")
    raise result


def _size_of(plan: Plan) -> tuple[int, int, int]:
    settings = plan.settings
    return _image_size(plan), settings.batch, settings.micro_batch or settings.batch


def resolve(config: TrainConfig, plan: Plan, world_size: int = 1) -> TrainConfig:
    """Return the config with the plan's batch, image size and precision, which a resumed run must not plan again."""
    settings = plan.settings
    return replace(config, batch=settings.batch * world_size, imgsz=_image_size(plan), precision=settings.precision)


def _image_size(plan: Plan) -> int:
    size = plan.settings.size
    assert isinstance(size, int)  # noqa: S101  detectors are planned for square images
    return size


def _draw_labels(data: TrainingData) -> bytes | None:
    draw = partial(labels_plot, data.train.labels.boxes, data.dataset.names)
    return try_draw("labels.png", draw, _log.warning)


def _save_inputs(run_dir: RunDirectory, data: TrainingData, plan: Plan, dist: DistContext) -> None:
    run_dir.save_json("plan.json", {**plan_document(plan), "world_size": dist.world_size})
    issues = {"train": data.train.issues, "val": data.val.issues}
    run_dir.save_json("data_issues.json", {name: [vars(issue) for issue in items] for name, items in issues.items()})


def _log_data(dataset: Dataset, train_split: IndexedSplit, val_split: IndexedSplit, progress: ProgressCallback) -> None:
    for name, split in (("train", train_split), ("val", val_split)):
        boxes = count_of(len(split.labels.boxes), "box", "boxes")
        progress.log(f"{name}: {count_of(len(split.index), 'image')}, {boxes}")
        for issue in split.issues:
            progress.log(f"{name}: {issue}")
    if dataset.download:
        progress.log(f"`download:` of the yaml was not run: {dataset.download.splitlines()[0][:_MAX_DOWNLOAD]}")


def _check_boxes(
    dataset: Dataset, train_split: IndexedSplit, val_split: IndexedSplit, progress: ProgressCallback
) -> None:
    if not len(val_split.labels.boxes):
        progress.log("val has no boxes: the mAP will be 0")
    if not len(train_split.labels.boxes):
        example = label_path(Path(train_split.index.path(0)))
        raise UsageError(
            f"none of the {count_of(len(train_split.index), 'train image')} of {dataset.file} has a box",
            f"put their labels into files such as {example}",
        )


def _log_shared_images(splits: tuple[Split, Split], progress: ProgressCallback) -> None:
    if shared := shared_images(*splits):
        total = len(splits[1].images)
        effect = "meaningless" if shared == total else "too high"
        progress.log(f"{shared} of {total} val images are also train images: the mAP is {effect}")
