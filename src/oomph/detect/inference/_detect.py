"""Detectors in use: scored on a data set, or run over images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from ...data import ImageIndex, read_header
from ...errors import UsageError
from ..checkpoint._weights import Weights, read_weights
from ..dataset._data_yaml import read_dataset, read_split
from ..dataset._indexed_split import Material, prepare
from ..dataset._labels import LabelTable
from ..dataset._tiles import cut, large
from ..metrics._scores import ImageResult, Scores, score
from ..model._network import Yolov5
from ..model._nms import VALIDATION, Suppression
from ..plots._thumbnails import found_picture
from ..training._planning import find_device, side_of
from ._output_folder import FoundFiles
from ._sources import SourceImage, find_images, result_names
from ._validation import plainly, results_by_image, validate, validation_loader

_BATCH = 4
_ENDS = (".jpg", ".txt")  # of the results of an image


@dataclass(frozen=True)
class FoundInImage:
    """What was found in one image.

    Attributes:
        image: its path.
        picture: where it was drawn.
        boxes: (left, top, right, bottom) in pixels, class name and how sure.
    """

    image: str
    picture: str
    boxes: tuple[tuple[float, float, float, float, str, float], ...]


@dataclass(frozen=True)
class FoundObjects:
    """What was found in all images, what could not be read, with the reason, and what would find more."""

    images: tuple[FoundInImage, ...]
    set_aside: tuple[tuple[str, str], ...]
    advice: str | None = None


def evaluate_weights(  # noqa: PLR0913  each by its name
    weights: Path,
    data: Path,
    split: str,
    size: int,
    batch: int,
    device: str | None,
    *,
    tiles: bool | int = False,
    limits: Suppression = VALIDATION,
    said: Callable[[str], None] | None = None,
) -> Scores:
    """How good weights are on a split of a data set, with `tiles` by windows as in `find_objects`.

    Weights that know one class are scored on all classes taken for one. `said` is told what was set aside.

    Raises:
        MissingFile: there is no such file.
        UsageError: weights and data don't belong together, or one of them can't be read.
    """
    tell = said or _silently
    known, described = read_weights(weights), read_dataset(data)
    if known.classes not in {1, len(described.names)}:
        raise UsageError(
            f"the weights know {known.classes} classes and {data} has {len(described.names)}",
            "take the weights that were trained on this data",
        )
    chosen, names = read_split(described, split), described.names
    if known.classes < len(names):
        chosen, names = replace(chosen, labels=chosen.labels.as_one_class()), known.names or ("item",)
        tell(f"the weights know one class: the {len(described.names)} classes of {data} are taken for one")
    material = prepare(chosen)
    for one in material.set_aside:
        tell(f"{split}: {one}")
    model = _model(known, device)
    with validation_loader(material, side_of(size), batch, tiles=cut(tiles, side_of(size))) as loader:
        return score(validate(model, material, loader, plainly, limits), names)


def find_objects(  # noqa: PLR0913  each by its name
    weights: Path,
    source: Path | Sequence[str | Path],
    out: Path,
    *,
    size: int,
    limits: Suppression | None = None,
    device: str | None,
    tiles: bool | int = False,
) -> FoundObjects:
    """Find objects in images, and write pictures and YOLO text files.

    With `tiles`, images are searched by windows of that many pixels (of `size` pixels if True), each scaled to `size`,
    and what is found in them is put together, each object once.

    Args:
        weights: a file of weights.
        source: images, folders, patterns such as `photos/*.jpg`, and text files of paths.
        out: where results go; nothing there is overwritten but earlier results.
        size: side of the images.
        limits: which boxes stay, YOLOv5's if None.
        device: "cpu", "cuda" or "cuda:1"; the first GPU if there is one, without.
        tiles: whether images are searched by windows.

    Raises:
        MissingFile: there is no such image, folder or weights.
        UsageError: there is no image that can be read, or results would overwrite something else.
    """
    known, files = read_weights(weights), FoundFiles(out)
    names = known.names or tuple(str(number) for number in range(known.classes))
    named = _without_results(find_images([source] if isinstance(source, (str, Path)) else source), files)
    places = dict(zip((str(one.path) for one in named), (out / name for name in result_names(named)), strict=True))
    files.check((_suffixed(place, end) for place in places.values() for end in _ENDS), [one.path for one in named])
    index = ImageIndex.of(list(places))
    usable = index.usable
    aside = tuple((str(one.path), str(one.reason)) for one in index.skipped())
    if not len(usable):
        raise UsageError(f"none of the images of {_told(source)} can be read ({aside[0][1]})", "name other images")
    chosen, tiling = index.select(usable), cut(tiles, side_of(size))
    shapes = tuple((header.shown[1], header.shown[0]) for header in chosen)
    nothing = LabelTable(np.zeros((0, 5), np.float32), np.zeros(len(chosen) + 1, np.int64))
    material = Material(chosen, nothing, shapes, ())
    files.open()
    with validation_loader(material, side_of(size), _BATCH, tiles=tiling) as loader:
        results = results_by_image(_model(known, device), material, loader, plainly, limits or Suppression())
        late = {str(one.path): str(one.reason) for one in loader.skipped()}
    whole = {chosen.path(at): result for at, result in results.items() if chosen.path(at) not in late}
    try:
        found = tuple(_write(path, result, names, places[path], files) for path, result in whole.items())
    finally:
        files.close()
    return FoundObjects(found, (*aside, *late.items()), _advice(chosen, size) if tiling is None else None)


def _without_results(images: list[SourceImage], files: FoundFiles) -> list[SourceImage]:
    """Images without those that an earlier call wrote, where they lie in the folder that is searched."""
    kept = [image for image in images if not files.is_result(image.path)]
    return kept or images


def _told(source: Path | Sequence[str | Path]) -> str:
    if isinstance(source, (str, Path)):
        return str(source)
    return str(source[0]) if len(source) == 1 else f"{source[0]} and {len(source) - 1} more"


def _advice(index: ImageIndex, size: int) -> str | None:
    count = large(index, size)
    if not count:
        return None
    which = "one image is" if count == 1 else f"{count} images are"
    return f"{which} more than four times as large as {size} pixels: --tiles {size} finds small objects in such"


def _suffixed(place: Path, end: str) -> Path:
    return place.with_name(place.name + end)


def _write(path: str, result: ImageResult, names: tuple[str, ...], place: Path, files: FoundFiles) -> FoundInImage:
    header = read_header(path)
    picture, rows = (_suffixed(place, end) for end in _ENDS)
    drawn = Image.fromarray(found_picture(path, header, result.found, names))
    files.write(picture, lambda file: drawn.save(file, format="JPEG", quality=92))
    wide, high = header.shown
    found = result.found.astype(float).tolist()
    text = "".join(_row(box, wide, high) for box in found).encode()
    files.write(rows, lambda file: file.write(text))
    boxes = tuple((a, b, c, d, names[int(kind)], sure) for a, b, c, d, sure, kind in found)
    return FoundInImage(path, str(picture), boxes)


def _silently(words: str) -> None:
    del words


def _row(box: list[float], wide: int, high: int) -> str:
    """A box as a row of a YOLO text file, with how sure it is."""
    left, top, right, bottom, sure, kind = box
    middle = f"{(left + right) / 2 / wide:.6f} {(top + bottom) / 2 / high:.6f}"
    return f"{int(kind)} {middle} {(right - left) / wide:.6f} {(bottom - top) / high:.6f} {sure:.4f}\n"


def _model(known: Weights, device: str | None) -> Yolov5:
    return known.build().eval().to(find_device(device))
