"""Everything that a resumed run needs, as plain containers and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import UsageError
from ._average import average_state, set_average_state
from ._keepers import parameters_of
from ._randomness import random_states, set_random_states

if TYPE_CHECKING:
    from ._guard import Guard

_VERSION = 1
_NAMES = ("model", "optimizers", "scheduler", "scaler", "ema", "random", "gradients", "pending")


def guard_state(guard: Guard) -> dict[str, Any]:
    """The state of a guarded run between two steps."""
    options, ladder, footing = guard.options, guard.ladder.state_dict(), guard.footing.state_dict()
    return {
        "guard": {"version": _VERSION, "steps": guard.steps, "ladder": ladder, "footing": footing},
        "model": guard.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in guard.optimizers],
        "scheduler": [_state_of(one) for one in options.schedulers],
        "scaler": _state_of(guard.scaler),
        "ema": average_state(options.ema, guard.model),
        "random": _plain(random_states(_cuda(guard))),
        "loss": [one.state_dict() for one in guard.loss_modules],
        "outside": {name: one.detach() for name, one in _outside(guard)},
        "gradients": {name: one.grad for name, one in _parameters(guard) if one.grad is not None},
        "pending": guard.pending,
    }


def set_guard_state(guard: Guard, state: Mapping[str, Any]) -> None:
    """Set what `guard_state` gave.

    Raises:
        UsageError: it has another version, or belongs to a run with other parts.
    """
    own = _check(guard, state)
    guard.model.load_state_dict(state["model"])
    for optimizer, saved in zip(guard.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    for part, saved in ((guard.scaler, state["scaler"]), *_pair_up(guard, state["scheduler"])):
        if part is not None and saved is not None:
            part.load_state_dict(saved)
    set_average_state(guard.options.ema, state["ema"])
    _set_tensors(guard, state)
    guard.pending = state["pending"]
    guard.steps = own["steps"]
    guard.ladder.load_state_dict(own["ladder"])
    if "footing" in own:  # not in files of before there was one
        guard.footing.load_state_dict(own["footing"])
    set_random_states(_unplain(state["random"]), _cuda(guard))


def _check(guard: Guard, state: Mapping[str, Any]) -> Mapping[str, Any]:
    own: Mapping[str, Any] = state.get("guard", {})
    if own.get("version") != _VERSION:
        raise UsageError(f"the state has version {own.get('version')!r}", f"this oomph reads version {_VERSION}")
    missing = [name for name in _NAMES if name not in state]
    missing += [name for name in ("steps", "ladder") if name not in own]
    if missing:
        raise UsageError(f"the state has no {missing[0]!r}", "pass what state_dict() gave, whole")
    if len(state["optimizers"]) != len(guard.optimizers):
        raise UsageError(
            f"the state has {len(state['optimizers'])} optimizers and the guard {len(guard.optimizers)}",
            "make the guard as it was made before",
        )
    return own


def _pair_up(guard: Guard, saved: Any) -> Iterator[tuple[Any, Any]]:
    """Schedulers and their states; of one, the state may have been saved alone."""
    states = saved if isinstance(saved, list) else [saved]
    yield from zip(guard.options.schedulers, states, strict=False)


def _set_tensors(guard: Guard, state: Mapping[str, Any]) -> None:
    """Buffers of the loss, parameters outside the model, and accumulated gradients."""
    for module, saved in zip(guard.loss_modules, state.get("loss", ()), strict=False):
        module.load_state_dict(saved)
    for name, parameter in _outside(guard):
        if name in state.get("outside", {}):
            parameter.detach().copy_(state["outside"][name])
    for name, parameter in _parameters(guard):
        gradient = state["gradients"].get(name)
        parameter.grad = None if gradient is None else gradient.to(parameter.device)


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
