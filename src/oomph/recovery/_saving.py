"""A guard's state in a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import InvalidFile, MissingFile
from ..files import write_atomically

if TYPE_CHECKING:
    from ._guard import Guard

_log = logging.getLogger("oomph")
Place = str | os.PathLike[str] | Callable[[Any], object] | None


def check_place(place: Place) -> None:
    """Look at the start of a run whether it can be saved at its end.

    Raises:
        MissingFile: the folder isn't there, or there is a folder in the place of the file.
    """
    if place is None or callable(place):
        return
    target = Path(place)
    if not target.parent.is_dir():
        raise MissingFile(f"checkpoint is in {str(target.parent)!r}, and there is no such folder", "make it first")
    if target.is_dir():
        raise MissingFile(f"checkpoint is {str(target)!r}, which is a folder", "name a file in it")


def save(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state beside its place, make sure that it is on the disk, and put it there.

    Raises:
        MissingFile: there is no such folder.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise MissingFile(f"there is no folder {str(target.parent)!r}", "make it, or name another one")
    write_atomically(target, lambda file: torch.save(state, file))


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state; nothing in the file is executed.

    Raises:
        MissingFile: there is no such file.
        InvalidFile: it is no state that `save` wrote.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise MissingFile(f"there is no file {str(path)!r}", "check the path") from None
    except Exception as error:
        why = " ".join(str(error).split())[:120]
        raise InvalidFile(f"{str(path)!r} is no checkpoint ({why})", "name a file that the guard saved") from error
    if not isinstance(state, dict) or "guard" not in state:
        raise InvalidFile(f"{str(path)!r} is no checkpoint of a guard", "name a file that the guard saved")
    return state


def save_at_the_end(guard: Guard, place: Place, *, several: bool) -> str | None:
    """Save a run that ends, to a path or by a function; where, or None if it was not saved.

    Args:
        guard: whose.
        place: where to.
        several: whether it is one of several ranks: each has gradients of its own before an update, so that one file
            for all has none.
    """
    if place is None:
        return None
    try:
        if callable(place):
            place(guard)
            return "where checkpoint= puts it"
        state = guard.state_dict()
        if several and state["gradients"]:
            state |= {"gradients": {}, "pending": None}
            _log.warning("Batches since the last update are not in the checkpoint: each rank has gradients of its own.")
        save(state, place)
    except Exception as error:  # noqa: BLE001  the run ends with the first error, and names this one
        _log.error("The emergency checkpoint could not be written: %s", error)
        return None
    return os.fspath(place)
