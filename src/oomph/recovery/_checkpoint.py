"""A guard's state as plain containers and tensors, and in a file."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..batch import move
from ..errors import InvalidFile, MissingFile, UsageError
from ..files import write_atomically
from .snapshots import optimizer_parameters, owner_of, rng_states, set_rng_states

if TYPE_CHECKING:
    from ._guard import Guard

_log = logging.getLogger("oomph")
_VERSION = 1
_KEYS = (
    "model",
    "optimizers",
    "schedulers",
    "scaler",
    "ema",
    "rng",
    "loss_modules",
    "extra_params",
    "grads",
    "pending",
)
_SAME_SETUP = "create the guard as the saved one was created"

CheckpointPath = str | os.PathLike[str] | Callable[[Any], object] | None


def guard_state(guard: Guard, *, with_grads: bool) -> dict[str, Any]:
    """Return the state of a guarded run between two steps; without gradients where each rank has its own."""
    config, pending = guard.config, guard.accumulation.pending
    grads = {name: param.grad for name, param in _named_parameters(guard) if param.grad is not None}
    if grads and not with_grads:
        grads, pending = {}, None
        _log.warning("The checkpoint lacks the batches since the last update: each rank has its own gradients.")
    return {
        "guard": {
            "version": _VERSION,
            "steps": guard.steps,
            "retry_policy": guard.retry_policy.state_dict(),
            "optimizer_step": guard.optimizer_step.state_dict(),
        },
        "model": guard.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in guard.optimizers],
        "schedulers": [object_state(scheduler, guard.model) for scheduler in config.schedulers],
        "scaler": None if guard.scaler is None else guard.scaler.state_dict(),
        "ema": object_state(config.ema, guard.model),
        "rng": _with_tensors(rng_states(_cuda_device(guard))),
        "loss_modules": [module.state_dict() for module in guard.loss_modules],
        "extra_params": {name: param.detach() for name, param in _extra_parameters(guard)},
        "grads": grads,
        "pending": pending,
    }


def load_guard_state(guard: Guard, state: Mapping[str, Any], *, with_rng: bool) -> None:
    """Set the state that `guard_state` returned; without random states on ranks other than the one that saved it.

    Raises:
        UsageError: it has another version, or belongs to a guard with another setup.
    """
    _check(guard, state)
    guard.model.load_state_dict(state["model"])
    for optimizer, saved in zip(guard.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    load_rest(guard, state, with_rng=with_rng)


def load_rest(guard: Guard, state: Mapping[str, Any], *, with_rng: bool) -> None:
    """Set everything of a state but the model and the optimizers.

    Raises:
        UsageError: it has another version, or belongs to a guard with another setup.
    """
    header = _check(guard, state)
    if guard.scaler is not None and state["scaler"] is not None:
        guard.scaler.load_state_dict(state["scaler"])
    for target, saved in _objects(guard, state):
        load_object_state(target, saved, _device(guard))
    for module, saved in zip(guard.loss_modules, state["loss_modules"], strict=True):
        module.load_state_dict(saved)
    for name, param in _extra_parameters(guard):
        if name in state["extra_params"]:
            param.detach().copy_(state["extra_params"][name])
    for name, param in _named_parameters(guard):
        grad = state["grads"].get(name)
        param.grad = None if grad is None else grad.to(param.device)
    guard.accumulation.pending, guard.steps = state["pending"], header["steps"]
    guard.retry_policy.load_state_dict(header["retry_policy"])
    guard.optimizer_step.load_state_dict(header["optimizer_step"])
    if with_rng:
        set_rng_states(_without_tensors(state["rng"]), _cuda_device(guard))


def _check(guard: Guard, state: Mapping[str, Any]) -> Mapping[str, Any]:
    header: Mapping[str, Any] = state.get("guard", {})
    if header.get("version") != _VERSION:
        raise UsageError(f"the state has version {header.get('version')!r}", f"this oomph reads version {_VERSION}")
    missing = [key for key in _KEYS if key not in state]
    missing += [key for key in ("steps", "retry_policy", "optimizer_step") if key not in header]
    if missing:
        raise UsageError(f"the state has no {missing[0]!r}", "pass the complete result of state_dict()")
    current = {
        "optimizers": guard.optimizers,
        "schedulers": guard.config.schedulers,
        "loss_modules": guard.loss_modules,
    }
    for name, targets in current.items():
        if len(state[name]) != len(targets):
            got = f"the state has {len(state[name])} {name.replace('_', ' ')} and the guard has {len(targets)}"
            raise UsageError(got, _SAME_SETUP)
    for target, saved in _objects(guard, state):
        check_object_state(target, saved)
    return header


def _objects(guard: Guard, state: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Return schedulers and EMA, each with its saved state."""
    pairs = [*zip(guard.config.schedulers, state["schedulers"], strict=True), (guard.config.ema, state["ema"])]
    return [(target, saved) for target, saved in pairs if target is not None and saved is not None]


def _extra_parameters(guard: Guard) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters that only optimizers hold, such as those of a loss, named by their position there."""
    in_model = {id(param) for param in guard.model.parameters()}
    for number, optimizer in enumerate(guard.optimizers):
        for position, param in enumerate(optimizer_parameters(optimizer)):
            if id(param) not in in_model:
                yield f"optimizers.{number}.{position}", param


def _named_parameters(guard: Guard) -> Iterator[tuple[str, nn.Parameter]]:
    yield from guard.model.named_parameters()
    yield from _extra_parameters(guard)


def _device(guard: Guard) -> torch.device:
    return next(guard.model.parameters()).device


def _cuda_device(guard: Guard) -> torch.device | None:
    device = _device(guard)
    return device if device.type == "cuda" else None


def _with_tensors(states: dict[str, Any]) -> dict[str, Any]:
    """Replace NumPy's array by a tensor: a file with an array can't be loaded with `weights_only=True`."""
    if "numpy" not in states:
        return states
    numpy = dict(states["numpy"])
    key, position = numpy["state"]["key"], numpy["state"]["pos"]
    numpy["state"] = {"key": torch.tensor(key.astype("int64")), "pos": int(position)}
    return {**states, "numpy": numpy}


def _without_tensors(states: dict[str, Any]) -> dict[str, Any]:
    if "numpy" not in states:
        return states
    numpy = dict(states["numpy"])
    key, position = numpy["state"]["key"], numpy["state"]["pos"]
    numpy["state"] = {"key": key.numpy().astype("uint32"), "pos": position}
    return {**states, "numpy": numpy}


def object_state(target: Any, model: nn.Module) -> Any:
    """Return the state of an EMA or a scheduler: its `state_dict()`, or else those attributes that can be saved.

    Args:
        target: the object, or its bound update method.
        model: the trained model, which is saved elsewhere.
    """
    owner = owner_of(target)
    if owner is None or hasattr(owner, "state_dict"):
        return None if owner is None else owner.state_dict()
    state = {}
    for name, value in vars(owner).items():
        if isinstance(value, nn.Module) and value is not model:
            state[name] = value.state_dict()
        elif _is_plain(value):
            state[name] = value
        elif not callable(value) and not isinstance(value, Optimizer):
            kind = type(owner).__name__
            _log.warning("The checkpoint lacks %r of %s: give it state_dict() and load_state_dict().", name, kind)
    return state


def check_object_state(target: Any, state: Any) -> None:
    """Check that an object has what was saved.

    Raises:
        UsageError: it has other attributes.
    """
    owner = owner_of(target)
    missing = [] if hasattr(owner, "load_state_dict") else [name for name in state if not hasattr(owner, name)]
    if missing:
        raise UsageError(f"the {type(owner).__name__} has no {missing[0]!r}, which the saved one has", _SAME_SETUP)


def load_object_state(target: Any, state: Any, device: torch.device) -> None:
    """Set the state that `object_state` returned."""
    owner = owner_of(target)
    if hasattr(owner, "load_state_dict"):
        owner.load_state_dict(state)
        return
    for name, saved in state.items():
        current = getattr(owner, name)
        if isinstance(current, nn.Module):
            current.load_state_dict(saved)
        else:
            setattr(owner, name, move(saved, current.device if isinstance(current, Tensor) else device))


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, (str, int)) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, Tensor))


def check_checkpoint_path(path: CheckpointPath, *, is_folder: bool = False) -> None:
    """Check at the start of a run that it can be saved at its end.

    Raises:
        MissingFile: the folder doesn't exist, or the path is a folder.
    """
    if path is None or callable(path):
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise MissingFile(f"checkpoint is in {str(target.parent)!r}, which is not a folder", "create it first")
    if target.is_dir() and not is_folder:
        raise MissingFile(f"checkpoint is {str(target)!r}, which is a folder", "name a file in it")
    if target.is_file() and is_folder:
        raise MissingFile(f"checkpoint is {str(target)!r}, which is a file", "name a folder: each rank writes its part")


def save(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state to a file atomically.

    Raises:
        MissingFile: the folder doesn't exist.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise MissingFile(f"there is no folder {str(target.parent)!r}", "create it, or name another one")
    plain = _without_numpy_scalars(state)
    write_atomically(target, lambda file: torch.save(plain, file))


def _without_numpy_scalars(value: Any) -> Any:
    """Convert NumPy scalars, which schedulers may compute: `torch.load(weights_only=True)` rejects them."""
    if type(value) is dict:  # not the OrderedDict of a module, which has attributes
        return {name: _without_numpy_scalars(item) for name, item in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_without_numpy_scalars(item) for item in value)
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state; nothing in the file is executed.

    Raises:
        MissingFile: there is no such file.
        InvalidFile: it is not a state that `save` wrote.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise MissingFile(f"there is no file {str(path)!r}", "check the path") from None
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        fix = "name a file that the guard saved"
        raise InvalidFile(f"{str(path)!r} is not a checkpoint ({reason})", fix) from error
    if not isinstance(state, dict) or "guard" not in state:
        raise InvalidFile(f"{str(path)!r} is not a checkpoint of a guard", "name a file that the guard saved")
    return state


def save_emergency(guard: Guard, path: CheckpointPath) -> str | None:
    """Save a run that is about to end, to a path or by the user's function.

    Returns:
        Where it was saved; None if it wasn't.
    """
    if path is None:
        return None
    try:
        if callable(path):
            saved = path(guard)
            return os.fspath(saved) if isinstance(saved, (str, os.PathLike)) else "the place that checkpoint= chose"
        guard.save(path)
    except Exception as error:  # noqa: BLE001  the run ends with its first error; this one is only reported
        _log.error("The emergency checkpoint could not be written: %s", error)
        return None
    return os.fspath(path)
