"""Image files of a split: folders walked, lists read, duplicates and broken links left out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from ...data import walk_images
from ._issues import OUTSIDE_ROOTS, IssueLog

IMAGE_SUFFIXES = frozenset({".bmp", ".dng", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff", ".webp"})
LIST_SUFFIXES = frozenset({".txt", ".lst"})
_MAX_QUOTED = 60


def find_split_images(entries: Sequence[Path], root: Path, roots: Sequence[Path], log: IssueLog) -> list[Path]:
    """Return the images of a split's entries (folders, list files, images), each file once.

    Args:
        entries: what the yaml names for the split.
        root: folder that relative paths of lists may start at.
        roots: folders that links may lead to.
        log: receives the skipped images.
    """
    return _usable_files(_named_images(entries, root, roots, log), log)


def is_list_file(path: Path) -> bool:
    """Return True if the suffix is that of a text file of image paths."""
    return path.suffix.lower() in LIST_SUFFIXES


def _named_images(entries: Sequence[Path], root: Path, roots: Sequence[Path], log: IssueLog) -> Iterator[Path]:
    for entry in entries:
        if entry.is_dir():
            yield from _walk_folder(entry, roots, log)
        elif is_list_file(entry):
            yield from _read_list(entry, root, log)
        else:
            yield entry


def _walk_folder(folder: Path, roots: Sequence[Path], log: IssueLog) -> Iterator[Path]:
    """Yield the images of a folder and its subfolders, sorted by name; links to folders are followed once.

    A link to an image is an image. A link to a folder elsewhere may lead to a whole disk, so the yaml must name it.
    """

    def follow_link(path: str, target: str) -> bool:
        if any(Path(target).is_relative_to(root) for root in roots):
            return True
        images = sum(file.suffix.lower() in IMAGE_SUFFIXES for file in Path(target).iterdir())
        log.add("image", f"in a linked folder {OUTSIDE_ROOTS}", f"{path} -> {target}", count=max(images, 1))
        return False

    files = walk_images(folder, suffixes=IMAGE_SUFFIXES, files_first=True, check_links=False, follow_link=follow_link)
    for file in files:
        path = folder / os.fsdecode(file.name)
        if path.suffix.lower() in IMAGE_SUFFIXES:  # not a folder that can't be read
            yield path


def _read_list(file: Path, root: Path, log: IssueLog) -> Iterator[Path]:
    """Yield the images of a list file; paths are relative to the list, to `root` or to the current folder."""
    lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        spellings = (Path(text), Path(PurePosixPath(text.replace("\\", "/"))))
        bases = (file.parent, root, Path.cwd())
        candidates = (base / spelling for spelling in spellings for base in bases)
        path = next((candidate for candidate in candidates if _is_file(candidate)), None)
        if path is None:
            log.add("image", "listed but missing", f"{file}:{number} {text[:_MAX_QUOTED]!r}")
        elif path.suffix.lower() not in IMAGE_SUFFIXES:
            log.add("image", "listed but not an image file", f"{file}:{number} {text[:_MAX_QUOTED]!r}")
        else:
            yield path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # not a valid file name
        return False


def _usable_files(images: Iterable[Path], log: IssueLog) -> list[Path]:
    """Leave out broken links and duplicates."""
    kept: dict[Path, Path] = {}
    for image in images:
        real = image.resolve()
        if not _is_file(real):
            log.add("image", "broken link", str(image))
        elif real in kept:
            log.add("image", "listed twice: used once", str(image), broken=False)
        else:
            kept[real] = image
    return list(kept.values())
