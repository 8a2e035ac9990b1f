"""Score weights on a dataset: the function behind `oomph val`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...charts import try_draw
from ...errors import UsageError
from ...files import write_atomically
from ..dataset import LoadConfig, index_split, read_dataset, read_split, tiling
from ..metrics import Scores, score
from ..model import VAL_NMS, round_to_stride
from ..plots import image_png, prediction_grid, validation_plots
from ._config import InferenceConfig, load_detector
from ._validation import results_by_image, run_unguarded, validation_loader


def validate_weights(
    config: InferenceConfig,
    data: Path,
    split_name: str = "val",
    batch: int = 16,
    log: Callable[[str], object] = lambda _: None,
    plots: Path | None = None,
) -> Scores:
    """Score weights on a split of a dataset. Weights with one class are scored with all classes merged into one.

    Args:
        config: weights, image size, device, tiles and NMS thresholds.
        data: the data.yaml.
        split_name: "train", "val" or "test".
        batch: images per batch.
        log: called with a sentence about each issue of the data, and each plot that can't be written.
        plots: folder for plots of the scores and for images with labels and predictions; none if None.

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
        by_image = results_by_image(detector.model, indexed, loader, run_unguarded, config.nms or VAL_NMS)
    results = {image: by_image[image] for image in sorted(by_image)}
    scores = score(list(results.values()), names)
    if plots is not None:
        files = validation_plots(list(results.values()), scores, names)
        files["val_predictions.png"] = lambda: image_png(prediction_grid(indexed.index, results, names))
        for name, draw in files.items():
            _write_plot(plots / name, draw, log)
    return scores


def _write_plot(path: Path, draw: Callable[[], bytes], log: Callable[[str], object]) -> None:
    content = try_draw(path.name, draw, log)
    if content is None:
        return
    try:
        write_atomically(path, lambda file: file.write(content))
    except OSError as error:
        log(f"{path} could not be written: {error.strerror or error}.")
