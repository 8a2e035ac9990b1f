"""The state of a guard under FSDP2, as a folder of torch.distributed.checkpoint: each rank writes its shards.

The folder has the weights and the optimizers' states in torch's format, and everything else in `guard.pt`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from ...errors import InvalidFile, MissingFile, UsageError
from .._checkpoint import guard_state, load, load_rest, save

if TYPE_CHECKING:
    from .._guard import Guard

_REST = "guard.pt"


def save_sharded(guard: Guard, path: str | os.PathLike[str], group: Any) -> None:
    """Write the state on all ranks; an existing folder is replaced once the new one is complete.

    Raises:
        MissingFile: the folder that it belongs into doesn't exist, or the path is a file.
        UsageError: a moving average is sharded.
    """
    from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: PLC0415  imports take a second
    from torch.distributed.checkpoint.state_dict_saver import save as save_shards  # noqa: PLC0415

    target = Path(path)
    if not target.parent.is_dir() or target.is_file():
        raise MissingFile(f"{str(target)!r} can't be a folder", "name a new folder in an existing one")
    rest = {**guard_state(guard, with_grads=False), "model": {}, "optimizers": [{}] * len(guard.optimizers)}
    if any(type(leaf).__name__ == "DTensor" for leaf in tree_leaves(rest)):
        raise UsageError("a moving average of sharded weights can't be saved", "save it by a function (checkpoint=)")
    model, optimizers = get_state_dict(guard.model, guard.optimizers)
    partial = target.with_name(f"{target.name}.partial")
    if dist.get_rank(group) == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        save(rest, partial / _REST)
    dist.barrier(group)
    save_shards({"model": model, "optimizers": optimizers}, checkpoint_id=partial, process_group=group)
    if dist.get_rank(group) == 0:
        _replace(target, partial)
    dist.barrier(group)


def _replace(target: Path, partial: Path) -> None:
    """Put a complete folder into its place; if the process is killed in between, the old one has another name."""
    previous = target.with_name(f"{target.name}.previous")
    shutil.rmtree(previous, ignore_errors=True)
    if target.exists():
        target.rename(previous)
    partial.rename(target)
    shutil.rmtree(previous, ignore_errors=True)


def load_sharded(guard: Guard, path: str | os.PathLike[str], group: Any) -> None:
    """Set the state that any number of ranks saved.

    Raises:
        MissingFile: there is no such folder.
        InvalidFile: it is not a folder that `save_sharded` wrote, or belongs to another model.
    """
    from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415  imports take a second
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_loader import load as load_shards  # noqa: PLC0415

    folder = Path(path)
    if not (folder / _REST).is_file():
        raise MissingFile(f"{str(folder)!r} is not a folder that the guard saved", "check the path")
    rest = load(folder / _REST)
    model, optimizers = get_state_dict(guard.model, guard.optimizers)
    states: Any = optimizers["state"]
    try:
        stateless = _without_state(folder, states)
        stateful = {name: value for name, value in states.items() if name not in stateless}
        load_shards(
            {"model": model, "optimizers": {**optimizers, "state": stateful}},
            checkpoint_id=folder,
            process_group=group,
        )
    except (CheckpointException, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[-200:]
        raise InvalidFile(f"{str(folder)!r} can't be loaded ({reason})", "use the model that was saved") from error
    set_state_dict(guard.model, guard.optimizers, model_state_dict=model, optim_state_dict=optimizers)
    for name, param in guard.model.named_parameters():
        for optimizer in guard.optimizers if name in stateless else ():
            optimizer.state.pop(param, None)
    load_rest(guard, rest, with_rng=dist.get_rank(group) == 0)


def _without_state(folder: Path, names: Iterable[str]) -> set[str]:
    """Return the parameters that had no optimizer state when they were saved, such as those of an unused layer."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415

    saved = {key.rpartition(".")[0] for key in FileSystemReader(folder).read_metadata().state_dict_metadata}
    return {name for name in names if f"optimizers.state.{name}" not in saved}
