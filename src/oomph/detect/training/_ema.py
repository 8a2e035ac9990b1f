"""The moving average of a network's weights, which is what is validated and kept."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

_DECAY = 0.9999
_RAMP = 2000.0


class _Pairs:
    """Tensors of an average beside those of the network, found once: that takes as long as a fifth of a step."""

    def __init__(self, module: nn.Module | None = None, model: nn.Module | None = None) -> None:
        self._model = model
        self._places: list[tuple[dict[str, Any], str]] = []  # where the network has its modules and tensors
        self._tensors: list[Any] = []
        self.averaged: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.copied: list[Tensor] = []
        self.counters: list[Tensor] = []
        if module is None or model is None:
            return
        self._places = [place for one in model.modules() for place in _places(one)]
        self._tensors = [owner[name] for owner, name in self._places]
        state = model.state_dict()
        for name, value in module.state_dict().items():
            floats = value.is_floating_point()
            (self.averaged if floats else self.copied).append(value)
            (self.weights if floats else self.counters).append(state[name].detach())

    def of(self, module: nn.Module, model: nn.Module) -> _Pairs:
        """These, if the network still has the same tensors; those that it has now otherwise."""
        same = model is self._model and all(map(is_, (owner.get(name) for owner, name in self._places), self._tensors))
        return self if same else _Pairs(module, model)


def _places(module: nn.Module) -> Iterator[tuple[dict[str, Any], str]]:
    for owner in (module._modules, module._parameters, module._buffers):  # noqa: SLF001  the place has no public name
        yield from ((owner, name) for name in owner)


class Ema:
    """A copy of a network that follows it slowly, and more slowly the longer it has.

    Attributes:
        module: the average, in eval mode; buffers such as BatchNorm's statistics are averaged too.
        updates: how often it was moved.
        takes_no_memory: an update changes tensors in place and makes none, so that a guard needs no copy of them.
    """

    updates_in_place = True

    def __init__(self, model: nn.Module, decay: float = _DECAY, ramp: float = _RAMP) -> None:
        self.module = copy.deepcopy(_bare(model)).eval().requires_grad_(requires_grad=False)
        self.updates = 0
        self._decay, self._ramp = decay, ramp
        self._pairs = _Pairs()

    @property
    def decay(self) -> float:
        """How much of the average stays at an update."""
        return self._decay * (1 - math.exp(-self.updates / self._ramp))

    def update(self, model: nn.Module) -> None:
        """Move the average toward the network."""
        self.updates += 1
        pairs = self._pairs = self._pairs.of(self.module, _bare(model))
        with torch.no_grad():  # one call for all of them, and one for all counters
            torch._foreach_lerp_(pairs.averaged, pairs.weights, 1 - self.decay)
            if pairs.copied:
                torch._foreach_copy_(pairs.copied, pairs.counters)

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {"updates": self.updates, "module": self.module.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.module.load_state_dict(state["module"])
        self.updates = int(state["updates"])


def _bare(model: nn.Module) -> nn.Module:
    """The network itself, where DistributedDataParallel wraps it."""
    inner = getattr(model, "module", None)
    return inner if isinstance(inner, nn.Module) else model
