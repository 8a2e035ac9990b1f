"""Which updates happen or don't, so that no copy is needed to go back to."""

from __future__ import annotations

from operator import attrgetter, is_
from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks as _all_after
from torch.optim.optimizer import _global_optimizer_pre_hooks as _all_before

from ._keepers import parameters_of

_SETTINGS = ("foreach", "fused", "weight_decay", "maximize", "differentiable")
_PLACE = attrgetter("is_cuda", "dtype")


class Wholeness:
    """Whether an optimizer's update is whole, looked at again when its settings change.

    Args:
        optimizer: whose.
        hooks: how many hooks after its step are the guard's own.
    """

    def __init__(self, optimizer: Optimizer, hooks: int = 0) -> None:
        self._optimizer, self._hooks = optimizer, hooks
        self._settings: list[tuple[Any, ...]] | None = None
        self._parameters: list[nn.Parameter] = []  # at the last look
        self._asks_first = False

    @property
    def is_fused(self) -> bool:
        """Whether it is one kernel a group, which needs no memory."""
        return all(group.get("fused") for group in self._optimizer.param_groups)

    def holds(self, *, sparing: bool = False) -> bool:
        """On a GPU, it needs no memory, or takes all that it needs before it writes.

        Args:
            sparing: whether parameters may be updated one after the other, where only a fused update is whole.
        """
        fused = self.is_fused
        if not fused and (sparing or type(self._optimizer) is not SGD):
            return False
        if self._is_hooked():
            return False
        parameters = parameters_of(self._optimizer)
        places = set(map(_PLACE, parameters))
        if not places or not all(on_gpu for on_gpu, _ in places):
            return False
        if not self._knows(parameters):
            self._asks_first = asks_first(self._optimizer)
        if not fused and (len(places) > 1 or not self._asks_first):
            return False
        state = self._optimizer.state
        if len(state) == len(parameters) and all(map(is_, state, parameters)) and all(state.values()):
            return True
        return all(state.get(one) for one in parameters if one.grad is not None)

    def _is_hooked(self) -> bool:
        """Whether somebody's own code runs within the step: before its writes, or when they are done already."""
        before: Any = self._optimizer._optimizer_step_pre_hooks  # noqa: SLF001  there is no public name for them
        after: Any = self._optimizer._optimizer_step_post_hooks  # noqa: SLF001  as above
        return bool(before or len(after) > self._hooks or _all_before or _all_after)

    def _knows(self, parameters: list[nn.Parameter]) -> bool:
        """Whether settings and parameters are those of the last look."""
        groups = self._optimizer.param_groups
        settings = [(*map(group.get, _SETTINGS), isinstance(group["lr"], Tensor)) for group in groups]
        same = len(parameters) == len(self._parameters) and all(map(is_, parameters, self._parameters))
        if same and settings == self._settings:
            return True
        self._settings, self._parameters = settings, parameters
        return False


def asks_first(optimizer: Optimizer) -> bool:
    """Whether an update over all tensors at once allocates nothing after its first write: SGD's, in its common form.

    Decayed gradients are new tensors, and all that follows is in place. A second group with a decay, or a second type,
    would allocate when the first is written already.
    """
    groups = optimizer.param_groups
    if type(optimizer) is not SGD or not all(map(_is_over_all, groups)):
        return False
    if any(group["weight_decay"] or group["maximize"] for group in groups[1:]):
        return False
    if any(group["differentiable"] or isinstance(group["lr"], Tensor) for group in groups):
        return False
    parameters = parameters_of(optimizer)
    return len({(one.device, one.dtype) for one in parameters}) == 1 and all(map(_is_plain, parameters))


def _is_over_all(group: dict[str, Any]) -> bool:
    """Whether torch updates all tensors of a group at once, on a GPU: unless one of the two forms was asked about."""
    return bool(group["foreach"]) or (group["foreach"] is None and group.get("fused") is None)


def _is_plain(parameter: nn.Parameter) -> bool:
    sparse = parameter.grad is not None and parameter.grad.is_sparse
    return type(parameter) in {Tensor, nn.Parameter} and not sparse
