"""Which updates happen or don't, so that no copy is needed to go back to."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ._keepers import parameters_of

_SETTINGS = ("foreach", "weight_decay", "maximize", "differentiable")


class Wholeness:
    """Whether an optimizer's update is whole, looked at again when its settings change."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._settings: list[tuple[Any, ...]] | None = None
        self._asks_first = False

    def __bool__(self) -> bool:
        """On a GPU, it is one kernel a group, which needs no memory, or takes all that it needs before it writes."""
        groups = self._optimizer.param_groups
        if not all(group.get("fused") for group in groups):
            if type(self._optimizer) is not SGD:
                return False
            settings = [
                (*map(group.get, _SETTINGS), isinstance(group["lr"], Tensor), len(group["params"])) for group in groups
            ]
            if settings != self._settings:
                self._settings, self._asks_first = settings, asks_first(self._optimizer)
            if not self._asks_first:
                return False
        parameters = parameters_of(self._optimizer)
        if not all(map(attrgetter("is_cuda"), parameters)):
            return False
        state = self._optimizer.state  # what is counted needn't be looked for, one by one
        return len(state) == len(parameters) or all(one in state for one in parameters if one.grad is not None)


def asks_first(optimizer: Optimizer) -> bool:
    """Whether an update over all tensors at once allocates nothing after its first write: SGD's, in its common form.

    Decayed gradients are new tensors, and all that follows is in place. A second group with a decay, or a second type,
    would allocate when the first is written already.
    """
    groups = optimizer.param_groups
    if type(optimizer) is not SGD or any(group["foreach"] is False for group in groups):
        return False
    if any(group["weight_decay"] or group["maximize"] for group in groups[1:]):
        return False
    if any(group["differentiable"] or isinstance(group["lr"], Tensor) for group in groups):
        return False
    parameters = parameters_of(optimizer)
    return len({(one.device, one.dtype) for one in parameters}) == 1 and all(map(_is_plain, parameters))


def _is_plain(parameter: nn.Parameter) -> bool:
    sparse = parameter.grad is not None and parameter.grad.is_sparse
    return type(parameter) in {Tensor, nn.Parameter} and not sparse
