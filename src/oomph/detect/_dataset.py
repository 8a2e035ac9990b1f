"""Data sets as users have them: the data.yaml, the images it names, and where their labels lie."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import MissingFile, WrongCall
from ._labels import LabelTable, read_labels
from ._set_aside import Collector, SetAside
from ._yaml import read_yaml

SPLITS = ("train", "val", "test")
SUFFIXES = frozenset({".bmp", ".dng", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff", ".webp"})
LISTS = frozenset({".txt", ".lst"})


@dataclass(frozen=True)
class DataSet:
    """What a data.yaml says.

    Attributes:
        file: the yaml.
        root: the folder that its paths begin at.
        splits: for "train", "val" and "test", the folders and list files that the yaml names, as far as it does.
        names: of the classes.
        roots: every folder that the yaml names; nothing outside them is read.
        download: what its `download:` says. It is never run.
    """

    file: Path
    root: Path
    splits: dict[str, tuple[Path, ...]]
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
        WrongCall: it doesn't say what is needed.
    """
    content = read_yaml(path)
    root = _root(path, content.get("path"))
    splits = {name: _entries(content[name], name, path) for name in SPLITS if content.get(name)}
    if "train" not in splits and "val" not in splits:
        raise WrongCall(f"{path} names neither train nor val images", "write `train: images/train` or the like")
    download = content.get("download")
    hint = f"; its `download:` says {str(download).strip()[:80]!r}, which oomph never runs" if download else ""
    found = {name: tuple(_place(entry, root, path, name, hint) for entry in split) for name, split in splits.items()}
    return DataSet(
        file=path,
        root=root,
        splits=found,
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
        WrongCall: there is no such split, no image in it, or more than the tolerated share is broken.
    """
    if name not in data.splits:
        raise WrongCall(f"{data.file} names no {name} images", f"add a line `{name}: images/{name}`")
    aside = Collector()
    images = _inside(data, _images(data, name, aside), aside)
    listed = len(images) + aside.broken("image")
    aside.stop_if_too_many("image", listed, tolerated, str(data.file))
    if not images:
        raise WrongCall(f"the {name} split of {data.file} has no images", "check the paths in it")
    labels = read_labels([label_path(image) for image in images], len(data.names), data.roots, aside)
    aside.stop_if_too_many("box", len(labels.boxes) + aside.broken("box"), tolerated, str(data.file))
    return Split(name, tuple(images), labels, aside.told())


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
        raise WrongCall(f"{file} has {path!r} as path", "write a folder")
    given = Path(path).expanduser()
    for base in (file.parent, Path.cwd()):
        if (base / given).is_dir():
            return (base / given).resolve()
    return (file.parent / given).resolve()


def _entries(value: Any, split: str, file: Path) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str) for entry in entries):
        raise WrongCall(f"{file} has {value!r} as {split}", "write a folder, a text file of paths, or a list of these")
    return tuple(entries)


def _place(entry: str, root: Path, file: Path, split: str, hint: str) -> Path:
    given = Path(entry).expanduser()
    for base in (root, file.parent, Path.cwd()):
        for name in (given, Path(entry.replace("\\", "/"))):
            if (base / name).exists():
                return base / name
    raise MissingFile(
        f"there is no folder or file '{root / given}', the {split} images of {file}{hint}",
        "put the data there, or mend the path",
    )


def _names(content: dict[str, Any], file: Path) -> tuple[str, ...]:
    names, count = content.get("names"), content.get("nc")
    if names is None and isinstance(count, int) and count > 0:
        names = [str(number) for number in range(count)]
    if isinstance(names, dict):
        keys = {str(key): str(name) for key, name in names.items()}
        if keys.keys() != {str(number) for number in range(len(keys))}:
            raise WrongCall(f"{file} names the classes {sorted(keys)}", "number them 0, 1, 2, … without a gap")
        names = [keys[str(number)] for number in range(len(keys))]
    if not isinstance(names, list) or not names:
        raise WrongCall(f"{file} has no names of classes", "write `names: [cat, dog]`")
    if isinstance(count, int) and count != len(names):
        raise WrongCall(f"{file} says nc: {count} and names {len(names)} classes", "let them agree")
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
            yield from _walk(entry)
        elif entry.suffix.lower() in LISTS:
            yield from _listed(entry, data, aside)
        else:
            yield entry


def _walk(folder: Path) -> Iterator[Path]:
    """Images of a folder and those inside it, in the order of their names; links to folders are followed once."""
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (
            Path(place, file)
            for file in sorted(files)
            if os.path.splitext(file)[1].lower() in SUFFIXES  # noqa: PTH122
        )


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


def _inside(data: DataSet, images: Iterator[Path], aside: Collector) -> list[Path]:
    """Leave out what lies outside every folder that the yaml names, links followed, and what was there before."""
    kept: dict[Path, Path] = {}
    for image in images:
        real = image.resolve()
        if not is_inside(real, data.roots):
            aside.add("image", "outside every folder that the yaml names", f"{image} -> {real}")
        elif not _is_file(real):
            aside.add("image", "a link to nowhere", str(image))
        elif real in kept:
            aside.add("image", "listed twice", str(image), broken=False)
        else:
            kept[real] = image
    return list(kept.values())


def is_inside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a resolved path lies in one of the folders."""
    return any(path.is_relative_to(root) for root in roots)
