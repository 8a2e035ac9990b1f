"""Images that a detector is run over: found by what the user names, each with a place of its own for the results."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import MissingFile, UsageError
from ..dataset._data_yaml import LISTS, SUFFIXES

_VIDEOS = frozenset({".asf", ".avi", ".gif", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv"})


@dataclass(frozen=True)
class SourceImage:
    """An image that was named or found.

    Attributes:
        path: where it lies.
        below: its path below the folder that was named, or its name.
    """

    path: Path
    below: Path


def find_images(sources: Sequence[str | Path]) -> list[SourceImage]:
    """The images of files, folders, patterns such as `photos/*.jpg`, and text files of paths, each once.

    Raises:
        MissingFile: there is nothing of that name.
        UsageError: it is no image but a video, a camera or an address, or a folder without images.
    """
    found: dict[str, SourceImage] = {}
    for source in sources:
        for image in _named(str(source)):
            found.setdefault(os.path.abspath(image.path), image)  # noqa: PTH100  links stay what they are called
    return list(found.values())


def result_names(images: Sequence[SourceImage]) -> list[Path]:
    """A name for the results of each image, without a suffix: where it lies below what was named.

    Images that differ in their suffix alone keep it, and those of one name from several folders their folders.
    """
    below = [image.below for image in images]
    if len({str(one).casefold() for one in below}) < len(below):  # not every disk tells capitals apart
        paths = [os.path.abspath(image.path) for image in images]  # noqa: PTH100
        below = [Path(path).relative_to(os.path.commonpath(paths)) for path in paths]
    names = [one.with_suffix("") for one in below]
    while True:  # a name with its suffix may be that of another image without: each round ends one more such pair
        counts = Counter(str(name).casefold() for name in names)
        longer = [whole if counts[str(name).casefold()] > 1 else name for whole, name in zip(below, names, strict=True)]
        if longer == names:
            return names
        names = longer


def _named(text: str) -> Iterator[SourceImage]:
    """What one argument stands for."""
    path = Path(text)
    if path.is_dir():
        yield from _folder(path)
    elif path.is_file() and path.suffix.lower() in LISTS:
        yield from _listed(path)
    elif path.is_file() and path.suffix.lower() not in _VIDEOS:
        yield SourceImage(path, Path(path.name))
    elif glob.has_magic(text) and (matches := sorted(glob.glob(text, recursive=True))):  # noqa: PTH207  absolute ones too
        for one in matches:
            if Path(one).is_dir() or Path(one).suffix.lower() in SUFFIXES:
                yield from _named(one)
    else:
        raise _refusal(text)


def _folder(folder: Path) -> Iterator[SourceImage]:
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise UsageError(f"there are no images in {folder}", "name a folder with images")
    for path in found:
        yield SourceImage(path, path.relative_to(folder))


def _listed(file: Path) -> Iterator[SourceImage]:
    lines = [line.strip() for line in file.read_text(encoding="utf-8-sig", errors="replace").splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    if not wanted:
        raise UsageError(f"{file} lists no images", "write the path of an image a line")
    for line in wanted:
        place = next((one for one in (file.parent / line, Path(line)) if one.is_file()), None)
        if place is None:
            raise MissingFile(f"there is no image '{line}', which {file} lists", "mend the path or take it out")
        yield SourceImage(place, Path(place.name))


def _refusal(text: str) -> MissingFile | UsageError:
    if "://" in text:
        return UsageError(f"'{text}' is an address, and oomph fetches nothing", "download it, and name the file")
    if Path(text).suffix.lower() in _VIDEOS:
        return UsageError(f"'{text}' is a video, and only images are looked at", "write its frames into a folder first")
    if text.isdigit() or text == "screen":
        return UsageError(f"'{text}' is a camera or screen to YOLOv5, and only files are looked at", "name images")
    return MissingFile(f"there is no image or folder '{text}'", "check the path")
