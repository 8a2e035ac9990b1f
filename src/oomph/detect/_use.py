"""Detectors in use: scored on a data set, or run over images."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from ..data import ImageIndex, read_header
from ..errors import MissingFile, WrongCall
from ._checkpoint import Weights, read_weights, write_atomically
from ._dataset import SUFFIXES, read_dataset, read_split
from ._labels import LabelTable
from ._material import Material, prepare
from ._metrics import ImageResult, Scores, score
from ._network import Yolov5
from ._planning import find_device, side_of
from ._suppression import VALIDATION
from ._tiles import cut, large
from ._validation import plainly, results_by_image, validate, validation_loader
from ._view import found_picture

_BATCH = 4


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
) -> Scores:
    """How good weights are on a split of a data set, with `tiles` by windows as in `find_objects`.

    Raises:
        MissingFile: there is no such file.
        WrongCall: weights and data don't belong together, or one of them can't be read.
    """
    known, described = read_weights(weights), read_dataset(data)
    if known.classes != len(described.names):
        raise WrongCall(
            f"the weights know {known.classes} classes and {data} has {len(described.names)}",
            "take the weights that were trained on this data",
        )
    material = prepare(read_split(described, split))
    model = _model(known, device)
    with validation_loader(material, side_of(size), batch, tiles=cut(tiles, side_of(size))) as loader:
        return score(validate(model, material, loader, plainly), described.names)


def find_objects(  # noqa: PLR0913  each by its name
    weights: Path,
    source: Path,
    out: Path,
    *,
    size: int,
    limits: tuple[float, float],
    device: str | None,
    tiles: bool | int = False,
) -> FoundObjects:
    """Find objects in an image or a folder of images, and write pictures and YOLO text files.

    With `tiles`, images are searched by windows of that many pixels (of `size` pixels if True), each scaled to `size`,
    and what is found in them is put together, each object once.

    Raises:
        MissingFile: there is no such image, folder or weights.
        WrongCall: there is no image in the folder that can be read.
    """
    known = read_weights(weights)
    names = known.names or tuple(str(number) for number in range(known.classes))
    index = ImageIndex.of([str(path) for path in _images(source)])
    usable = index.usable
    aside = tuple((str(one.path), str(one.reason)) for one in index.aside())
    if not len(usable):
        raise WrongCall(f"none of the images of {source} can be read ({aside[0][1]})", "name other images")
    chosen, tiling = index.select(usable), cut(tiles, side_of(size))
    shapes = tuple((header.shown[1], header.shown[0]) for header in chosen)
    nothing = LabelTable(np.zeros((0, 5), np.float32), np.zeros(len(chosen) + 1, np.int64))
    material = Material(chosen, nothing, shapes, ())
    wanted = replace(VALIDATION, confidence=limits[0], overlap=limits[1], several_labels=False)
    with validation_loader(material, side_of(size), _BATCH, tiles=tiling) as loader:
        results = results_by_image(_model(known, device), material, loader, plainly, wanted)
        late = {str(one.path): str(one.reason) for one in loader.aside()}
    out.mkdir(parents=True, exist_ok=True)
    whole = {at: result for at, result in results.items() if chosen.path(at) not in late}
    found = tuple(_write(chosen.path(at), result, names, out) for at, result in whole.items())
    return FoundObjects(found, (*aside, *late.items()), _advice(chosen, size) if tiling is None else None)


def _advice(index: ImageIndex, size: int) -> str | None:
    count = large(index, size)
    if not count:
        return None
    which = "one image is" if count == 1 else f"{count} images are"
    return f"{which} more than four times as large as {size} pixels: --tiles {size} finds small objects in such"


def _images(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise MissingFile(f"there is no image or folder '{source}'", "check the path")
    found = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        raise WrongCall(f"there are no images in {source}", "name a folder with images")
    return found


def _write(path: str, result: ImageResult, names: tuple[str, ...], out: Path) -> FoundInImage:
    header = read_header(path)
    stem = Path(os.path.basename(path)).stem  # noqa: PTH119  the path is text from the index
    picture = out / f"{stem}.jpg"
    drawn = Image.fromarray(found_picture(path, header, result.found, names))
    write_atomically(picture, lambda file: drawn.save(file, format="JPEG", quality=92))
    wide, high = header.shown
    found = result.found.astype(float).tolist()
    text = "".join(_row(box, wide, high) for box in found).encode()
    write_atomically(out / f"{stem}.txt", lambda file: file.write(text))
    boxes = tuple((a, b, c, d, names[int(kind)], sure) for a, b, c, d, sure, kind in found)
    return FoundInImage(path, str(picture), boxes)


def _row(box: list[float], wide: int, high: int) -> str:
    """A box as a row of a YOLO text file, with how sure it is."""
    left, top, right, bottom, sure, kind = box
    middle = f"{(left + right) / 2 / wide:.6f} {(top + bottom) / 2 / high:.6f}"
    return f"{int(kind)} {middle} {(right - left) / wide:.6f} {(bottom - top) / high:.6f} {sure:.4f}\n"


def _model(known: Weights, device: str | None) -> Yolov5:
    return known.build().eval().to(find_device(device))
