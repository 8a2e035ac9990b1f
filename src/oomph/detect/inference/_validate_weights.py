"""Score weights on a dataset: the function behind `oomph val`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...errors import UsageError
from ..dataset import LoadConfig, index_split, read_dataset, read_split, tiling
from ..metrics import Scores, score
from ..model import VAL_NMS, round_to_stride
from ._config import InferenceConfig, load_detector
from ._validation import run_unguarded, validate, validation_loader


def validate_weights(
    config: InferenceConfig,
    data: Path,
    split_name: str = "val",
    batch: int = 16,
    log: Callable[[str], object] = lambda _: None,
) -> Scores:
    """Score weights on a split of a dataset. Weights with one class are scored with all classes merged into one.

    Args:
        config: weights, image size, device, tiles and NMS thresholds.
        data: the data.yaml.
        split_name: "train", "val" or "test".
        batch: images per batch.
        log: called with a sentence about each issue of the data.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: weights and data don't match, or one of them can't be read.
    """
    imgsz = round_to_stride(config.imgsz)
    detector, dataset = load_detector(config.weights, config.device, imgsz), read_dataset(data)
    if detector.classes not in {1, len(dataset.names)}:
        raise UsageError(
            f"the weights have {detector.classes} classes and {data} has {len(dataset.names)}",
            "use weights that were trained on this data",
        )
    split, names = read_split(dataset, split_name), dataset.names
    if detector.classes < len(names):
        split, names = replace(split, labels=split.labels.as_single_cls()), detector.names or ("item",)
        log(f"the weights have one class: the {len(dataset.names)} classes of {data} are merged into one")
    indexed = index_split(split)
    for issue in indexed.issues:
        log(f"{split_name}: {issue}")
    with validation_loader(indexed, LoadConfig(imgsz, batch), tiling(config.tiles, imgsz)) as loader:
        return score(validate(detector.model, indexed, loader, run_unguarded, config.nms or VAL_NMS), names)
