"""Data sets as users have them: the data.yaml, the images it names, and where their labels lie."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import MissingFile, UsageError
from .._yaml import read_yaml
from ._issues import OUTSIDE, Collector, SetAside
from ._labels import LabelTable, read_labels

SPLITS = ("train", "val", "test")
SUFFIXES = frozenset({".bmp", ".dng", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff", ".webp"})
LISTS = frozenset({".txt", ".lst"})
_MEND = "put the data there, or mend the path"


@dataclass(frozen=True)
class DataSet:
    """What a data.yaml says.

    Attributes:
        file: the yaml.
        root: the folder that its paths begin at.
        splits: for "train", "val" and "test", the folders and list files that the yaml names, as far as it does.
        missing: for a split whose folder or list isn't there, what to say when somebody asks for it.
        names: of the classes.
        roots: every folder that the yaml names; labels and folders that links lead to outside of them are not read.
        download: what its `download:` says. It is never run.
    """

    file: Path
    root: Path
    splits: dict[str, tuple[Path, ...]]
    missing: dict[str, str]
    names: tuple[str, ...]
    roots: tuple[Path, ...]
    download: str | None


@dataclass(frozen=True)
class Split:
    """The images of one split that can be used, with their boxes.

    Attributes:
        name: "train", "val" or "test".
        images: their paths.
        labels: the boxes of all of them, packed.
        set_aside: what was left out or mended, by kind.
    """

    name: str
    images: tuple[Path, ...]
    labels: LabelTable
    set_aside: tuple[SetAside, ...]


def read_dataset(path: Path) -> DataSet:
    """Read a data.yaml.

    Raises:
        MissingFile: there is no such file, or no folder or list that it names.
        UsageError: it doesn't say what is needed.
    """
    content = read_yaml(path)
    root = _root(path, content.get("path"))
    splits = {name: _entries(content[name], name, path) for name in SPLITS if content.get(name)}
    if "train" not in splits and "val" not in splits:
        raise UsageError(f"{path} names neither train nor val images", "write `train: images/train` or the like")
    download = content.get("download")
    hint = f"; its `download:` says {str(download).strip()[:80]!r}, which oomph never runs" if download else ""
    places = {name: [(entry, _place(entry, root, path)) for entry in split] for name, split in splits.items()}
    missing = {
        name: f"there is no folder or file '{root / entry}', the {name} images of {path}{hint}"
        for name, split in places.items()
        for entry, place in split
        if place is None
    }
    found = {name: tuple(place for _, place in split if place) for name, split in places.items() if name not in missing}
    if "train" not in found and "val" not in found:
        raise MissingFile(missing.get("train") or missing["val"], _MEND)
    return DataSet(
        file=path,
        root=root,
        splits=found,
        missing=missing,
        names=_names(content, path),
        roots=_roots(root, found, content.get("roots"), path),
        download=str(download) if download else None,
    )


def read_split(data: DataSet, name: str, tolerated: float = 0.1) -> Split:
    """Find the images of a split and read their labels; what can't be used is set aside and told.

    Args:
        data: what the yaml says.
        name: "train", "val" or "test".
        tolerated: the share of images, and of boxes, that may be set aside as broken.

    Raises:
        MissingFile: the folder or list that the yaml names isn't there.
        UsageError: there is no such split, no image in it, or more than the tolerated share is broken.
    """
    if name in data.missing:
        raise MissingFile(data.missing[name], _MEND)
    if name not in data.splits:
        raise UsageError(f"{data.file} names no {name} images", f"add a line `{name}: images/{name}`")
    aside = Collector()
    images = _usable(_images(data, name, aside), aside)
    listed = len(images) + aside.broken("image")
    aside.stop_if_too_many("image", listed, tolerated, str(data.file))
    if not images:
        raise UsageError(f"the {name} split of {data.file} has no images", "check the paths in it")
    labels, kept = read_labels(
        [label_path(image) for image in images], len(data.names), _trusted(data, name, images), aside
    )
    aside.stop_if_too_many("label file", len(images), tolerated, str(data.file))
    aside.stop_if_too_many("box", len(labels.boxes) + aside.broken("box"), tolerated, str(data.file))
    return Split(name, tuple(images[at] for at in kept), labels, aside.told())


def shared_images(first: Split, second: Split) -> int:
    """How many images two splits have in common; if any, the second one's mAP means little."""
    return len({image.resolve() for image in first.images} & {image.resolve() for image in second.images})


def as_one_class(data: DataSet, splits: tuple[Split, Split]) -> tuple[DataSet, tuple[Split, Split]]:
    """The same data with all classes taken for one."""
    if len(data.names) == 1:
        return data, splits
    first, second = (replace(split, labels=split.labels.as_one_class()) for split in splits)
    return replace(data, names=("item",)), (first, second)


def label_path(image: Path) -> Path:
    """Where the label of an image lies: `labels/…txt` for the last `images/` of its path, else beside it."""
    parts = list(image.parts)
    for index in range(len(parts) - 2, -1, -1):
        if parts[index] == "images":
            parts[index] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


def _root(file: Path, path: Any) -> Path:
    """Where paths begin: beside the yaml, or beside the current folder as YOLOv5 has it."""
    if path is None:
        return file.parent.resolve()
    if not isinstance(path, str):
        raise UsageError(f"{file} has {path!r} as path", "write a folder")
    given = Path(path).expanduser()
    for base in (file.parent, Path.cwd()):
        if (base / given).is_dir():
            return (base / given).resolve()
    return (file.parent / given).resolve()


def _entries(value: Any, split: str, file: Path) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str) for entry in entries):
        raise UsageError(f"{file} has {value!r} as {split}", "write a folder, a text file of paths, or a list of these")
    return tuple(entries)


def _place(entry: str, root: Path, file: Path) -> Path | None:
    """Where an entry of the yaml lies, None if nowhere.

    Exports of Roboflow say `../train/images` and mean `train/images` beside the yaml.
    """
    plain = Path(entry.replace("\\", "/"))
    below = Path(*itertools.dropwhile(lambda part: part == "..", plain.parts))
    for name in (Path(entry).expanduser(), plain, *([below] if below.parts else [])):
        for base in (root, file.parent, Path.cwd()):
            if (base / name).exists():
                return base / name
    return None


def _names(content: dict[str, Any], file: Path) -> tuple[str, ...]:
    names, count = content.get("names"), content.get("nc")
    if names is None and isinstance(count, int) and count > 0:
        names = [str(number) for number in range(count)]
    if isinstance(names, dict):
        keys = {str(key): str(name) for key, name in names.items()}
        if keys.keys() != {str(number) for number in range(len(keys))}:
            raise UsageError(f"{file} names the classes {sorted(keys)}", "number them 0, 1, 2, … without a gap")
        names = [keys[str(number)] for number in range(len(keys))]
    if not isinstance(names, list) or not names:
        raise UsageError(f"{file} has no names of classes", "write `names: [cat, dog]`")
    if isinstance(count, int) and count != len(names):
        raise UsageError(f"{file} says nc: {count} and names {len(names)} classes", "let them agree")
    return tuple(str(name) for name in names)


def _roots(root: Path, splits: dict[str, tuple[Path, ...]], extra: Any, file: Path) -> tuple[Path, ...]:
    """Every folder that the yaml itself names, with the labels' folder beside the images' one."""
    found = [root]
    for entry in (entry for split in splits.values() for entry in split):
        folder = entry if entry.is_dir() else entry.parent
        found += [folder, label_path(folder / "any").parent]
    found += [file.parent / str(one) for one in (extra if isinstance(extra, list) else [extra] if extra else [])]
    return tuple(dict.fromkeys(folder.resolve() for folder in found))


def _images(data: DataSet, name: str, aside: Collector) -> Iterator[Path]:
    for entry in data.splits[name]:
        if entry.is_dir():
            yield from _walk(entry, data.roots, aside)
        elif entry.suffix.lower() in LISTS:
            yield from _listed(entry, data, aside)
        else:
            yield entry


def _trusted(data: DataSet, name: str, images: Sequence[Path]) -> Sequence[Path]:
    """Folders that labels may lie in: those that the yaml names, and those of the images that its lists name."""
    if not any(entry.suffix.lower() in LISTS for entry in data.splits[name]):
        return data.roots
    beside = {label_path(folder / "any").parent for folder in {image.parent for image in images}}
    return (*data.roots, *(folder.resolve() for folder in beside))


def _walk(folder: Path, roots: Sequence[Path], aside: Collector) -> Iterator[Path]:
    """Images of a folder and those inside it, in the order of their names; links to folders are followed once.

    A link to an image is an image. One to a folder elsewhere may lead to a whole disk: the yaml must name that folder.
    """
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        pictures = [Path(place, file) for file in sorted(files) if _suffix(file) in SUFFIXES]
        if not is_inside(Path(real), roots):
            aside.add("image", f"in a linked folder {OUTSIDE}", f"{place} -> {real}", count=max(len(pictures), 1))
            folders.clear()
            continue
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from pictures


def _suffix(file: str) -> str:
    return os.path.splitext(file)[1].lower()  # noqa: PTH122


def _listed(file: Path, data: DataSet, aside: Collector) -> Iterator[Path]:
    """The images that a text file lists, relative to itself, to the data's root or to the current folder."""
    lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        spellings = (Path(text), Path(PurePosixPath(text.replace("\\", "/"))))
        bases = (file.parent, data.root, Path.cwd())
        places = (base / spelling for spelling in spellings for base in bases)
        found = next((place for place in places if _is_file(place)), None)
        if found is None:
            aside.add("image", "listed, but not there", f"{file}:{number} {text[:60]!r}")
        elif found.suffix.lower() not in SUFFIXES:
            aside.add("image", "listed, but no image by its name", f"{file}:{number} {text[:60]!r}")
        else:
            yield found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _usable(images: Iterator[Path], aside: Collector) -> list[Path]:
    """Leave out what isn't there, links followed, and what was there before."""
    kept: dict[Path, Path] = {}
    for image in images:
        real = image.resolve()
        if not _is_file(real):
            aside.add("image", "a link to nowhere", str(image))
        elif real in kept:
            aside.add("image", "listed twice", str(image), broken=False)
        else:
            kept[real] = image
    return list(kept.values())


def is_inside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a resolved path lies in one of the folders."""
    return any(path.is_relative_to(root) for root in roots)
