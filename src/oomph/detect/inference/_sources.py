"""Images to run a detector on, and unique names for their outputs."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...data import walk_images
from ...errors import MissingFile, UsageError
from ..dataset import IMAGE_SUFFIXES, LIST_SUFFIXES

_VIDEO_SUFFIXES = frozenset(
    {".asf", ".avi", ".gif", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv"}
)


@dataclass(frozen=True)
class SourceImage:
    """An image to run on.

    Attributes:
        path: path of the image.
        relative: its path below the folder that the user named, or its file name.
    """

    path: Path
    relative: Path


def find_images(sources: Sequence[str | Path]) -> list[SourceImage]:
    """Find the images of files, folders, patterns such as `photos/*.jpg` and text files of paths, each once.

    Raises:
        MissingFile: a source doesn't exist.
        UsageError: a source is a video, camera or URL, or a folder without images.
    """
    images: dict[str, SourceImage] = {}
    for source in sources:
        for image in _images_of(str(source)):
            images.setdefault(os.path.abspath(image.path), image)  # noqa: PTH100  doesn't resolve links
    return list(images.values())


def output_names(images: Sequence[SourceImage]) -> list[Path]:
    """Return a unique output name for each image, without a suffix: its relative path.

    Images that differ only in their suffix keep it. Images of the same name from several folders keep their folders.
    """
    relative = [image.relative for image in images]
    if len({str(path).casefold() for path in relative}) < len(relative):  # some file systems ignore case
        paths = [os.path.abspath(image.path) for image in images]  # noqa: PTH100
        relative = [Path(path).relative_to(os.path.commonpath(paths)) for path in paths]
    names = [path.with_suffix("") for path in relative]
    while True:  # a name with its suffix may equal another name without one; each round resolves one such pair
        counts = Counter(str(name).casefold() for name in names)
        longer = [
            path if counts[str(name).casefold()] > 1 else name for path, name in zip(relative, names, strict=True)
        ]
        if longer == names:
            return names
        names = longer


def _images_of(source: str) -> Iterator[SourceImage]:
    path = Path(source)
    if path.is_dir():
        yield from _images_in_folder(path)
    elif path.is_file() and path.suffix.lower() in LIST_SUFFIXES:
        yield from _images_in_list(path)
    elif path.is_file() and path.suffix.lower() not in _VIDEO_SUFFIXES:
        yield SourceImage(path, Path(path.name))
    elif glob.has_magic(source) and (matches := sorted(glob.glob(source, recursive=True))):  # noqa: PTH207  absolute too
        for match in matches:
            if Path(match).is_dir() or Path(match).suffix.lower() in IMAGE_SUFFIXES:
                yield from _images_of(match)
    else:
        raise _source_error(source)


def _images_in_folder(folder: Path) -> Iterator[SourceImage]:
    files = walk_images(folder, suffixes=IMAGE_SUFFIXES, check_links=False)
    paths = [folder / os.fsdecode(file.name) for file in files if file.reason is None]
    if not paths:
        raise UsageError(f"there are no images in {folder}", "pass a folder with images")
    for path in paths:
        yield SourceImage(path, path.relative_to(folder))


def _images_in_list(file: Path) -> Iterator[SourceImage]:
    lines = [line.strip() for line in file.read_text(encoding="utf-8-sig", errors="replace").splitlines()]
    entries = [line for line in lines if line and not line.startswith("#")]
    if not entries:
        raise UsageError(f"{file} lists no images", "write the path of one image per line")
    for entry in entries:
        path = next((path for path in (file.parent / entry, Path(entry)) if path.is_file()), None)
        if path is None:
            raise MissingFile(f"there is no image '{entry}', which {file} lists", "fix the path or remove the line")
        yield SourceImage(path, Path(path.name))


def _source_error(source: str) -> MissingFile | UsageError:
    if "://" in source:
        return UsageError(f"'{source}' is a URL, and oomph downloads nothing", "download it and pass the file")
    if Path(source).suffix.lower() in _VIDEO_SUFFIXES:
        return UsageError(f"'{source}' is a video, and only images are supported", "extract its frames into a folder")
    if source.isdigit() or source == "screen":
        return UsageError(f"'{source}' is a camera or screen, and only image files are supported", "pass images")
    return MissingFile(f"there is no image or folder '{source}'", "check the path")
