"""Everything that a resumed run needs, as plain containers and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import WrongCall
from ._keepers import parameters_of
from ._randomness import random_states, set_random_states

if TYPE_CHECKING:
    from ._guard import Guard

_VERSION = 1


def guard_state(guard: Guard) -> dict[str, Any]:
    """The state of a guarded run between two steps."""
    options = guard.options
    return {
        "guard": {"version": _VERSION, "steps": guard.steps, "ladder": guard.ladder.state_dict()},
        "model": guard.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in guard.optimizers],
        "scheduler": _state_of(options.scheduler),
        "scaler": _state_of(guard.scaler),
        "ema": _state_of(_module_of(options.ema)),
        "random": _plain(random_states(_cuda(guard))),
        "outside": {name: one.detach() for name, one in _outside(guard)},
        "gradients": {name: one.grad for name, one in _parameters(guard) if one.grad is not None},
        "pending": guard.pending,
    }


def set_guard_state(guard: Guard, state: Mapping[str, Any]) -> None:
    """Set what `guard_state` gave.

    Raises:
        WrongCall: it has another version, or belongs to a run with other parts.
    """
    own = state.get("guard", {})
    if own.get("version") != _VERSION:
        raise WrongCall(f"the state has version {own.get('version')!r}", f"this oomph reads version {_VERSION}")
    if len(state["optimizers"]) != len(guard.optimizers):
        raise WrongCall(
            f"the state has {len(state['optimizers'])} optimizers and the guard {len(guard.optimizers)}",
            "make the guard as it was made before",
        )
    guard.model.load_state_dict(state["model"])
    for optimizer, saved in zip(guard.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    for part, name in ((guard.options.scheduler, "scheduler"), (guard.scaler, "scaler")):
        if part is not None and state[name] is not None:
            part.load_state_dict(state[name])
    average = _module_of(guard.options.ema)
    if average is not None and state["ema"] is not None:
        average.load_state_dict(state["ema"])
    for name, parameter in _outside(guard):
        if name in state.get("outside", {}):
            parameter.data.copy_(state["outside"][name])
    for name, parameter in _parameters(guard):
        gradient = state["gradients"].get(name)
        parameter.grad = None if gradient is None else gradient.to(parameter.device)
    guard.pending = state["pending"]
    guard.steps = own["steps"]
    guard.ladder.load_state_dict(own["ladder"])
    set_random_states(_unplain(state["random"]), _cuda(guard))


def _outside(guard: Guard) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters that only optimizers have, those of a loss for example, named by their places there."""
    inside = {id(one) for one in guard.model.parameters()}
    for number, optimizer in enumerate(guard.optimizers):
        for place, one in enumerate(parameters_of(optimizer)):
            if id(one) not in inside:
                yield f"optimizers.{number}.{place}", one


def _parameters(guard: Guard) -> Iterator[tuple[str, nn.Parameter]]:
    yield from guard.model.named_parameters()
    yield from _outside(guard)


def _cuda(guard: Guard) -> torch.device | None:
    device = next(guard.model.parameters()).device
    return device if device.type == "cuda" else None


def _state_of(part: Any) -> Any:
    return None if part is None or not hasattr(part, "state_dict") else part.state_dict()


def _module_of(ema: Any) -> Any:
    """What of an average has a state: itself, or the module that it holds."""
    owner = getattr(ema, "__self__", ema)
    if owner is None or hasattr(owner, "state_dict"):
        return owner
    held = [value for value in vars(owner).values() if isinstance(value, nn.Module)]
    return held[0] if held else None


def _plain(states: dict[str, Any]) -> dict[str, Any]:
    """NumPy's array as a tensor: a file with one would have to be trusted when it is read."""
    if "numpy" not in states:
        return states
    found = dict(states["numpy"])
    found["state"] = {"key": torch.tensor(found["state"]["key"].astype("int64")), "pos": int(found["state"]["pos"])}
    return {**states, "numpy": found}


def _unplain(states: dict[str, Any]) -> dict[str, Any]:
    if "numpy" not in states:
        return states
    found = dict(states["numpy"])
    key = found["state"]["key"].numpy().astype("uint32")
    return {**states, "numpy": {**found, "state": {"key": key, "pos": found["state"]["pos"]}}}
