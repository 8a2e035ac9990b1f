"""An update of an optimizer of our own, watched: what this version of torch makes in it."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_NUMBERS = {"weight_decay": 0.1, "momentum": 0.9}


@functools.cache
def share_made(kind: Any, on: tuple[str, ...]) -> float:
    """How much an update over all tensors makes, all that is alive together, as a share of the weights.

    Args:
        kind: the optimizer.
        on: those of its settings that aren't off or zero.

    Infinite if it can't be seen.
    """
    try:
        with torch.inference_mode(mode=False), torch.device("cpu"):
            return _rehearse(kind, on)
    except RuntimeError:  # under somebody's own settings it may mix devices
        return math.inf


def _rehearse(kind: Any, on: tuple[str, ...]) -> float:
    weights = [nn.Parameter(torch.ones(5, 3, dtype=dtype)) for dtype in (torch.float, torch.double)]
    settings = {name: _NUMBERS.get(name, True) for name in on}
    optimizer = kind([{"params": weights, **settings, "foreach": True}])
    step: Any = getattr(kind.step, "__wrapped__", kind.step)  # beneath hooks, which are anybody's
    for _ in range(2):  # the first one makes the state
        for one in weights:
            one.grad = torch.ones_like(one)
        with _Watch() as watch:
            step(optimizer)
    return float(watch.most / sum(one.numel() * one.element_size() for one in weights))


class _Watch(TorchDispatchMode):
    """Adds up the bytes of tensors that operations make, as long as they are alive; single numbers don't count."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: weakref.WeakSet[Tensor] = weakref.WeakSet()
        self.most = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        out = func(*args, **(kwargs or {}))
        if not func._schema.is_mutable:  # noqa: SLF001  there is no public name for it
            made = out if isinstance(out, (list, tuple)) else [out]
            self._made.update(one for one in made if isinstance(one, Tensor) and one.dim())
            self.most = max(self.most, sum(one.nbytes for one in self._made))
        return out
