"""Detect objects in images: the function behind `oomph detect`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ...data import ImageIndex, read_header
from ...errors import UsageError
from ..dataset import IndexedSplit, LabelTable, LoadConfig, count_large_images, image_shapes, tiling
from ..metrics import ImageResult
from ..model import NmsConfig, round_to_stride
from ..plots import detection_image
from ._config import Detector, InferenceConfig, load_detector
from ._output_folder import OutputFolder
from ._sources import SourceImage, find_images, output_names
from ._validation import results_by_image, run_unguarded, validation_loader

_BATCH = 4
_SUFFIXES = (".jpg", ".txt")  # of the files written for an image
_JPEG_QUALITY = 92


@dataclass(frozen=True)
class ImageDetections:
    """Objects detected in one image.

    Attributes:
        image: path of the image.
        drawing: path of the copy with boxes.
        boxes: left, top, right, bottom in pixels, class name and confidence.
    """

    image: str
    drawing: str
    boxes: tuple[tuple[float, float, float, float, str, float], ...]


@dataclass(frozen=True)
class DetectResult:
    """Objects detected in all images.

    Attributes:
        images: the images and their objects.
        skipped: path and reason of images that could not be read.
        hint: a suggestion that would find more objects, or None.
    """

    images: tuple[ImageDetections, ...]
    skipped: tuple[tuple[str, str], ...]
    hint: str | None = None


def detect_objects(config: InferenceConfig, source: str | Path | Sequence[str | Path], out: Path) -> DetectResult:
    """Detect objects in images, and write copies with boxes and YOLO text files.

    With tiles, objects that several tiles show are merged into one.

    Args:
        config: weights, image size, device, tiles and NMS thresholds.
        source: images, folders, patterns such as `photos/*.jpg`, and text files of paths.
        out: output folder; only files of earlier calls are overwritten there.

    Raises:
        MissingFile: an image, folder or the weights don't exist.
        UsageError: no image can be read, or another file would be overwritten.
    """
    detector = load_detector(config.weights, config.device, round_to_stride(config.imgsz))
    folder = OutputFolder(out)
    sources = [source] if isinstance(source, (str, Path)) else list(source)
    images = _without_outputs(find_images(sources), folder)
    targets = {str(image.path): out / name for image, name in zip(images, output_names(images), strict=True)}
    folder.check(
        (_with_suffix(target, suffix) for target in targets.values() for suffix in _SUFFIXES),
        [image.path for image in images],
    )
    index = ImageIndex.of(list(targets))
    undecodable = tuple((str(image.path), str(image.reason)) for image in index.skipped())
    if not len(index.usable):
        raise UsageError(f"no image of {_describe(sources)} can be read ({undecodable[0][1]})", "pass other images")
    index = index.select(index.usable)
    folder.create()
    results, skipped = _run(config, detector, index)
    names = detector.names or tuple(str(number) for number in range(detector.classes))
    try:
        detections = tuple(_write(path, result, names, targets[path], folder) for path, result in results.items())
    finally:
        folder.save_manifest()
    return DetectResult(detections, (*undecodable, *skipped.items()), _tiles_hint(index, config))


def _run(
    config: InferenceConfig, detector: Detector, index: ImageIndex
) -> tuple[dict[str, ImageResult], dict[str, str]]:
    """Return the results by path, and the reasons of images that failed to decode."""
    imgsz = round_to_stride(config.imgsz)
    no_labels = LabelTable(np.zeros((0, 5), np.float32), np.zeros(len(index) + 1, np.int64))
    split = IndexedSplit(index, no_labels, image_shapes(index), ())
    with validation_loader(split, LoadConfig(imgsz, _BATCH), tiling(config.tiles, imgsz)) as loader:
        results = results_by_image(detector.model, split, loader, run_unguarded, config.nms or NmsConfig())
        skipped = {str(image.path): str(image.reason) for image in loader.skipped()}
    by_path = {index.path(number): result for number, result in results.items()}
    return {path: result for path, result in by_path.items() if path not in skipped}, skipped


def _without_outputs(images: list[SourceImage], folder: OutputFolder) -> list[SourceImage]:
    """Leave out images that an earlier call wrote, in case the output folder is inside the searched one."""
    originals = [image for image in images if not folder.is_output(image.path)]
    return originals or images


def _describe(sources: Sequence[str | Path]) -> str:
    return str(sources[0]) if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"


def _tiles_hint(index: ImageIndex, config: InferenceConfig) -> str | None:
    count = 0 if config.tiles else count_large_images(index, config.imgsz)
    if not count:
        return None
    images = "1 image is" if count == 1 else f"{count} images are"
    return f"{images} more than 4 times as large as {config.imgsz} pixels: use --tiles {config.imgsz} for small objects"


def _with_suffix(target: Path, suffix: str) -> Path:
    return target.with_name(target.name + suffix)


def _write(path: str, result: ImageResult, names: Sequence[str], target: Path, folder: OutputFolder) -> ImageDetections:
    header = read_header(path)
    drawing_path, text_path = (_with_suffix(target, suffix) for suffix in _SUFFIXES)
    drawing = Image.fromarray(detection_image(path, header, result.predictions, names))
    folder.write(drawing_path, lambda file: drawing.save(file, format="JPEG", quality=_JPEG_QUALITY))
    width, height = header.display_size
    rows = result.predictions.astype(float).tolist()
    text = "".join(_yolo_row(row, width, height) for row in rows).encode()
    folder.write(text_path, lambda file: file.write(text))
    boxes = tuple(
        (left, top, right, bottom, names[int(label)], confidence)
        for left, top, right, bottom, confidence, label in rows
    )
    return ImageDetections(path, str(drawing_path), boxes)


def _yolo_row(row: list[float], width: int, height: int) -> str:
    """Format a box as a row of a YOLO text file, with its confidence."""
    left, top, right, bottom, confidence, label = row
    center = f"{(left + right) / 2 / width:.6f} {(top + bottom) / 2 / height:.6f}"
    size = f"{(right - left) / width:.6f} {(bottom - top) / height:.6f}"
    return f"{int(label)} {center} {size} {confidence:.4f}\n"
