"""Which updates happen or don't, so that no copy is needed to go back to."""

from __future__ import annotations

import itertools
from operator import is_
from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from ._hooks import is_hooked
from ._keepers import GRADIENT, Members, parameters_of
from ._rehearsal import share_made
from ._room import Room, is_kept, room_of

_SHAPING = ("weight_decay", "maximize", "amsgrad", "nesterov", "decoupled_weight_decay")
_SETTINGS = (*_SHAPING, "foreach", "fused", "differentiable", "capturable")
_KNOWN = {SGD, Adam, AdamW}


class Wholeness:
    """Whether an optimizer's update is whole, looked at again when anything of it is another one.

    Parameters that were moved to another device or type are not looked for: with state of the old one torch refuses.
    Nor is state that somebody takes from single ones: an update that ends half-way because of that is known to have.

    Args:
        optimizer: whose.
        hooks: how many hooks after its step are the guard's own.
    """

    def __init__(self, optimizer: Optimizer, hooks: int = 0) -> None:
        self.optimizer, self._hooks = optimizer, hooks
        self._parameters: list[nn.Parameter] = []  # at the last look
        self._members = Members([optimizer])
        self._settings: list[list[Any]] = []
        self._state: Any = None
        self._entries = 0  # in that
        self._has_state = False  # all of the parameters do
        self._firsts: list[nn.Parameter] = []  # of each group one that has a gradient, if any has
        self._room: Room | None = None
        self._may_hold = False
        self._is_unsure = False  # whether gradients that are still to come may be sparse

    @property
    def is_fused(self) -> bool:
        """Whether it is one kernel a group, which needs no memory."""
        return all(group.get("fused") for group in self.optimizer.param_groups)

    def holds(self, *, sparing: bool = False) -> bool:
        """On a GPU, it needs no memory, or takes all that it needs before it writes, or room for it can be found first.

        Args:
            sparing: whether parameters may be updated one after the other, where only a fused update is whole.
        """
        if not self._is_as_before():
            self._look()
        if not self._may_hold or (sparing and not self.is_fused) or is_hooked(self.optimizer, self._hooks):
            return False
        if self._has_state:
            return True
        state = self.optimizer.state
        return self._is_stateless() or all(state.get(one) for one in self._parameters if one.grad is not None)

    def _is_stateless(self) -> bool:
        return type(self.optimizer) is SGD and not any(group["momentum"] for group in self.optimizer.param_groups)

    def versions(self) -> list[int]:
        """Of tensors that change with the first write to a group: a parameter of it with a gradient, and its state."""
        if any(map(is_, map(GRADIENT, self._firsts), itertools.repeat(None))):
            self._find_firsts()
        state = self.optimizer.state
        entries = itertools.chain.from_iterable([state.get(one, {}).values() for one in self._firsts])
        watched = itertools.chain(self._firsts, entries)  # what is no tensor has no version
        return list(map(getattr, watched, itertools.repeat("_version"), itertools.repeat(0)))

    def _find_firsts(self) -> None:
        members = [group["params"] for group in self.optimizer.param_groups if group["params"]]
        self._firsts = [next((one for one in own if one.grad is not None), own[0]) for own in members]

    def _is_as_before(self) -> bool:
        """Whether settings and parameters are those of the last look."""
        state = self.optimizer.state
        if not self._members.are_same() or self._is_unsure:
            return False
        if self._state is not state or self._entries != len(state):
            return False
        return [list(map(group.get, _SETTINGS)) for group in self.optimizer.param_groups] == self._settings

    def find_room(self) -> None:
        """Make sure that there is memory for what the update makes after its first write, before it."""
        if self._room is not None:
            self._room.find()

    def _look(self) -> None:
        optimizer, parameters = self.optimizer, parameters_of(self.optimizer)
        self._parameters, self._state, self._entries = parameters, optimizer.state, len(optimizer.state)
        self._has_state = all(map(optimizer.state.get, parameters))
        self._settings = [list(map(group.get, _SETTINGS)) for group in optimizer.param_groups]
        self._may_hold, self._room = False, None
        self._find_firsts()
        self._is_unsure = type(optimizer) is SGD and any(map(_may_be_sparse, parameters))
        if self._is_unsure or not parameters or not all(map(_is_on_gpu, parameters)):
            return
        if self.is_fused or asks_first(optimizer):
            self._may_hold = True
        elif is_kept():
            self._room = room_for(optimizer)
            self._may_hold = self._room is not None


def _may_be_sparse(parameter: nn.Parameter) -> bool:
    """Whether it may be that of an embedding, of which nobody knows yet what gradients it gets."""
    return parameter.grad is None and parameter.requires_grad and parameter.dim() == 2  # noqa: PLR2004  a table


def _is_on_gpu(parameter: nn.Parameter) -> bool:
    return parameter.is_cuda


def asks_first(optimizer: Optimizer) -> bool:
    """Whether an update over all tensors at once allocates nothing after its first write: SGD's, in its common form.

    Decayed gradients are new tensors, and all that follows is in place. A second group with a decay, or a second type,
    would allocate when the first is written already.
    """
    groups = optimizer.param_groups
    if type(optimizer) is not SGD or not _is_simple(optimizer):
        return False
    if any(group["weight_decay"] or group["maximize"] for group in groups[1:]):
        return False
    return len({one.dtype for one in parameters_of(optimizer)}) == 1


def room_for(optimizer: Optimizer) -> Room | None:
    """The room that an update over all tensors at once needs; None where nobody knows.

    It is that of the weights of a group, as long as this version of torch makes no more.
    """
    kind: Any = type(optimizer)
    if kind not in _KNOWN or not _is_simple(optimizer):
        return None
    for group in optimizer.param_groups:
        on = tuple(name for name in ("momentum", *_SHAPING) if group.get(name))
        if share_made(kind, on) > 1:
            return None
    return room_of([group["params"] for group in optimizer.param_groups])


def _is_simple(optimizer: Optimizer) -> bool:
    """Whether torch updates all tensors of each group at once, with plain numbers, and nothing else."""
    for group in optimizer.param_groups:
        if not _is_over_all(group) or group["differentiable"] or group.get("capturable"):
            return False
        if any(isinstance(one, Tensor) for one in (group["lr"], *group.get("betas", ()))):
            return False
    parameters = parameters_of(optimizer)
    return len({one.device for one in parameters}) == 1 and all(map(_is_plain, parameters))


def _is_over_all(group: dict[str, Any]) -> bool:
    """Whether torch updates all tensors of a group at once, on a GPU: unless one of the two forms was asked about."""
    return bool(group["foreach"]) or (group["foreach"] is None and group.get("fused") is None)


def _is_plain(parameter: nn.Parameter) -> bool:
    sparse = parameter.grad is not None and parameter.grad.is_sparse
    return type(parameter) in {Tensor, nn.Parameter} and not sparse and not parameter.is_complex()
