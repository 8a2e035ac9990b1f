"""The moving average of a network's weights, which is what is validated and kept."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

_DECAY = 0.9999
_RAMP = 2000.0


class Ema:
    """A copy of a network that follows it slowly, and more slowly the longer it has.

    Attributes:
        module: the average, in eval mode; buffers such as BatchNorm's statistics are averaged too.
        updates: how often it was moved.
    """

    def __init__(self, model: nn.Module, decay: float = _DECAY, ramp: float = _RAMP) -> None:
        self.module = copy.deepcopy(_bare(model)).eval().requires_grad_(requires_grad=False)
        self.updates = 0
        self._decay, self._ramp = decay, ramp

    @property
    def decay(self) -> float:
        """How much of the average stays at an update."""
        return self._decay * (1 - math.exp(-self.updates / self._ramp))

    def update(self, model: nn.Module) -> None:
        """Move the average toward the network."""
        self.updates += 1
        ours: list[Tensor] = []
        theirs: list[Tensor] = []
        state = _bare(model).state_dict()
        for name, value in self.module.state_dict().items():
            if value.is_floating_point():
                ours.append(value)
                theirs.append(state[name].detach())
            else:
                value.copy_(state[name])
        with torch.no_grad():
            torch._foreach_lerp_(ours, theirs, 1 - self.decay)  # one kernel for all of them

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
