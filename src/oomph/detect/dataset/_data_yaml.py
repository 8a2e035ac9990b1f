"""The data.yaml of a dataset."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import MissingFile, UsageError
from .._yaml import quote, read_yaml
from ._labels import label_path

_SPLITS = ("train", "val", "test")
_MAX_DOWNLOAD = 80  # characters of `download:` that are quoted
FIX_PATH = "put the data there, or fix the path"


@dataclass(frozen=True)
class Dataset:
    """Content of a data.yaml.

    Attributes:
        file: the yaml.
        root: folder that its paths are relative to.
        splits: folders and list files of "train", "val" and "test", as far as the yaml names them.
        missing: error message for each split with a folder or list that doesn't exist.
        names: class names.
        roots: every folder that the yaml names. Labels and links that lead outside of them are not read.
        download: the yaml's `download:`, which is never run.
    """

    file: Path
    root: Path
    splits: dict[str, tuple[Path, ...]]
    missing: dict[str, str]
    names: tuple[str, ...]
    roots: tuple[Path, ...]
    download: str | None


def read_dataset(path: Path) -> Dataset:
    """Read a data.yaml.

    Raises:
        MissingFile: the yaml, or the folders of both train and val, don't exist.
        UsageError: required content is missing or invalid.
    """
    content = read_yaml(path)
    root = _find_root(path, content.get("path"))
    entries = {name: _parse_entries(content[name], name, path) for name in _SPLITS if content.get(name)}
    if "train" not in entries and "val" not in entries:
        raise UsageError(f"{path} names neither train nor val images", "add a line such as `train: images/train`")
    download = content.get("download")
    hint = f"; its `download:` is {str(download).strip()[:_MAX_DOWNLOAD]!r}, which oomph never runs" if download else ""
    located = {name: [(entry, _locate(entry, root, path)) for entry in split] for name, split in entries.items()}
    missing = {
        name: f"there is no folder or file '{root / entry}' with the {name} images of {path}{hint}"
        for name, split in located.items()
        for entry, place in split
        if place is None
    }
    splits = {name: tuple(place for _, place in split if place) for name, split in located.items()}
    splits = {name: split for name, split in splits.items() if name not in missing}
    if "train" not in splits and "val" not in splits:
        raise MissingFile(missing.get("train") or missing["val"], FIX_PATH)
    return Dataset(
        file=path,
        root=root,
        splits=splits,
        missing=missing,
        names=_parse_names(content, path),
        roots=_find_roots(root, splits, content.get("roots"), path),
        download=str(download) if download else None,
    )


def _find_root(file: Path, path: Any) -> Path:
    """Return the folder of `path:`, relative to the yaml or, as in YOLOv5, to the current folder."""
    if path is None:
        return file.parent.resolve()
    if not isinstance(path, str):
        raise UsageError(f"{file} sets path to {quote(path)}", "write a folder")
    folder = Path(path).expanduser()
    for base in (file.parent, Path.cwd()):
        if (base / folder).is_dir():
            return (base / folder).resolve()
    return (file.parent / folder).resolve()


def _parse_entries(value: Any, split: str, file: Path) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str) for entry in entries):
        raise UsageError(
            f"{file} sets {split} to {quote(value)}", "write a folder, a text file of paths, or a list of these"
        )
    return tuple(entries)


def _locate(entry: str, root: Path, file: Path) -> Path | None:
    """Return the path of a yaml entry; None if it doesn't exist.

    Roboflow exports say `../train/images` but mean `train/images` next to the yaml.
    """
    posix = Path(entry.replace("\\", "/"))
    below = Path(*itertools.dropwhile(lambda part: part == "..", posix.parts))
    for name in (Path(entry).expanduser(), posix, *([below] if below.parts else [])):
        for base in (root, file.parent, Path.cwd()):
            if (base / name).exists():
                return base / name
    return None


def _parse_names(content: dict[str, Any], file: Path) -> tuple[str, ...]:
    names, count = content.get("names"), content.get("nc")
    if names is None and isinstance(count, int) and count > 0:
        names = [str(number) for number in range(count)]
    if isinstance(names, dict):
        by_key = {str(key): str(name) for key, name in names.items()}
        if by_key.keys() != {str(number) for number in range(len(by_key))}:
            raise UsageError(
                f"{file} numbers the classes {quote(sorted(by_key))}", "number them 0, 1, 2, … without a gap"
            )
        names = [by_key[str(number)] for number in range(len(by_key))]
    if not isinstance(names, list) or not names:
        raise UsageError(f"{file} has no class names", "write `names: [cat, dog]`")
    if isinstance(count, int) and count != len(names):
        raise UsageError(f"{file} sets nc to {count} but names {len(names)} classes", "make them agree")
    return tuple(str(name) for name in names)


def _find_roots(root: Path, splits: dict[str, tuple[Path, ...]], extra: Any, file: Path) -> tuple[Path, ...]:
    """Return every folder that the yaml names, and the label folders of the image folders."""
    folders = [root]
    for entry in (entry for split in splits.values() for entry in split):
        folder = entry if entry.is_dir() else entry.parent
        folders += [folder, label_path(folder / "any").parent]
    folders += [file.parent / str(item) for item in (extra if isinstance(extra, list) else [extra] if extra else [])]
    return tuple(dict.fromkeys(folder.resolve() for folder in folders))
