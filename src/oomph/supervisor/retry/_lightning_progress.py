"""The progress that a checkpoint of Lightning holds, read without torch."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path


def is_within_epoch(checkpoint: Path) -> bool:
    """Return True if a checkpoint was saved before its epoch was done; False if it wasn't, or doesn't say so.

    One that was saved after the last batch, but before the end of the epoch, continues that epoch, too.
    """
    try:
        with zipfile.ZipFile(checkpoint) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            with archive.open(name) as file:
                content = _Reader(file).load()
        loop = content["loops"]["fit_loop"]
        epochs, batches = loop["epoch_progress"]["current"], loop["epoch_loop.batch_progress"]
        return bool(epochs["processed"] < epochs["ready"] or not batches["is_last_batch"])
    except Exception:  # noqa: BLE001  an unknown format or a damaged file may raise anything
        return False


class _Opaque(dict):  # type: ignore[type-arg]  # a pickle may fill it with anything
    """Stands for an object of any class, and for the result of any function."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # objects are also keys

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None:
        del state

    def append(self, item: object) -> None:
        """Ignore an item of a class that is a list."""

    def extend(self, items: object) -> None:
        """Ignore items of a class that is a list."""


class _Reader(pickle.Unpickler):
    """Reads containers, numbers and text."""

    def find_class(self, module: str, name: str) -> type[_Opaque]:
        del module, name
        return _Opaque

    def persistent_load(self, pid: object) -> None:
        del pid  # the elements of a tensor
