"""Exponential moving average (EMA) of the weights, which is validated and saved."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from ..model import student_of

_DECAY = 0.9999
_RAMP_UPDATES = 2000.0


class _TensorPairs:
    """Tensors of the average paired with those of the network; cached, since pairing takes a fifth of a step's time."""

    def __init__(self, module: nn.Module | None = None, model: nn.Module | None = None) -> None:
        self._model = model
        self._slots: list[tuple[dict[str, Any], str]] = []  # where the network stores its modules and tensors
        self._values: list[Any] = []
        self.averages: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.counter_copies: list[Tensor] = []
        self.counters: list[Tensor] = []
        if module is None or model is None:
            return
        self._slots = [slot for submodule in model.modules() for slot in _slots(submodule)]
        self._values = [table[name] for table, name in self._slots]
        state = model.state_dict()
        for name, value in module.state_dict().items():
            is_float = value.is_floating_point()
            (self.averages if is_float else self.counter_copies).append(value)
            (self.weights if is_float else self.counters).append(state[name].detach())

    def refreshed(self, module: nn.Module, model: nn.Module) -> _TensorPairs:
        """Return these pairs if the network still has the same tensors, else new ones."""
        same = model is self._model and all(map(is_, (table.get(name) for table, name in self._slots), self._values))
        return self if same else _TensorPairs(module, model)


def _slots(module: nn.Module) -> Iterator[tuple[dict[str, Any], str]]:
    for table in (module._modules, module._parameters, module._buffers):  # noqa: SLF001  no public equivalent
        yield from ((table, name) for name in table)


class Ema:
    """Exponential moving average of a network, with a decay that grows with the number of updates.

    Attributes:
        module: the average, in eval mode; buffers such as BatchNorm statistics are averaged too.
        updates: number of updates so far.
        updates_in_place: read by the guard: an update allocates nothing and needs no backup copy.
    """

    updates_in_place = True

    def __init__(self, model: nn.Module, decay: float = _DECAY, ramp: float = _RAMP_UPDATES) -> None:
        self.module = copy.deepcopy(student_of(model)).eval().requires_grad_(requires_grad=False)
        self.updates = 0
        self._decay, self._ramp = decay, ramp
        self._pairs = _TensorPairs()

    @property
    def decay(self) -> float:
        """The fraction of the average that an update keeps."""
        return self._decay * (1 - math.exp(-self.updates / self._ramp))

    def update(self, model: nn.Module) -> None:
        """Move the average toward the network."""
        self.updates += 1
        pairs = self._pairs = self._pairs.refreshed(self.module, student_of(model))
        with torch.no_grad():  # one kernel for all weights, one for all counters
            torch._foreach_lerp_(pairs.averages, pairs.weights, 1 - self.decay)
            if pairs.counter_copies:
                torch._foreach_copy_(pairs.counter_copies, pairs.counters)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"updates": self.updates, "module": self.module.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.module.load_state_dict(state["module"])
        self.updates = int(state["updates"])
