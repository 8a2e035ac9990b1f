"""`ClassFolder`: images with one subfolder per class, numbered as Keras and torchvision number them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingFile, UsageError, quote
from ._index import ImageIndex, Name


@dataclass(frozen=True, eq=False)
class ClassFolder:
    """Images of a folder and their classes; the subfolder directly in the folder names the class.

    Attributes:
        index: the images of all classes.
        names: names of the classes.
        classes: number of the class of each image of the index.
    """

    index: ImageIndex
    names: tuple[str, ...]
    classes: NDArray[np.int64]

    @classmethod
    def open(cls, folder: Name, names: Sequence[str] | None = None) -> ClassFolder:
        """Read the headers of all images. Images outside the subfolders of the classes are ignored.

        Args:
            folder: the folder with a subfolder per class.
            names: the classes in the order of their numbers. Without it, all subfolders in alphabetical order, empty
                ones too, but not hidden ones.

        Raises:
            MissingFile: the folder or the subfolder of a class doesn't exist.
            UsageError: there are no subfolders, or no images in them.
        """
        root = Path(folder)
        names = tuple(names) if names is not None else _subfolders(root)
        for name in names:
            if not (root / name).is_dir():
                raise MissingFile(f"there is no folder {quote(name)} in '{root}'", "create it, or omit the class")
        index = ImageIndex.open(root)
        numbers = {name: number for number, name in enumerate(names)}
        classes = np.array([numbers.get(_first_part(root, path), -1) for path in index.paths()], np.int64)
        if not (classes >= 0).any():
            raise UsageError(f"there are no images in the subfolders of '{root}'", "put the images of each class there")
        return cls(index.select(np.flatnonzero(classes >= 0)), names, classes[classes >= 0])


def _subfolders(root: Path) -> tuple[str, ...]:
    if not root.is_dir():
        raise MissingFile(f"there is no folder '{root}'", "name the folder that contains a folder per class")
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise UsageError(f"'{root}' has no subfolders", "put the images of each class in a folder of its name")
    return tuple(names)


def _first_part(root: Path, path: str) -> str:
    return os.path.relpath(path, root).split(os.sep, 1)[0]
