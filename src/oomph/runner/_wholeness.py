"""Which updates happen or don't, so that no copy is needed to go back to."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from ._keepers import parameters_of

_SETTINGS = ("foreach", "weight_decay", "maximize", "differentiable", "amsgrad", "capturable")
_KNOWN = {SGD, Adam, AdamW}


class How(enum.Enum):
    """How an update uses memory."""

    WHOLE = "none, or all of it before its first write"
    ASKED = "some after its first write, which can be asked for before"
    COPIED = "some after its first write: it may end in the middle"


class Wholeness:
    """How an optimizer's update uses memory, looked at again when its settings change."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._settings: list[tuple[Any, ...]] | None = None
        self._how = How.COPIED

    def how(self, *, sparing: bool = False) -> How:
        """How it uses memory now; only on a GPU is that known.

        Args:
            sparing: whether parameters may be updated one after the other, where only a fused update is whole.
        """
        groups = self._optimizer.param_groups
        if all(group.get("fused") for group in groups):
            how = How.WHOLE
        elif sparing or type(self._optimizer) not in _KNOWN:
            return How.COPIED
        else:
            how = self._over_all(groups)
        parameters = parameters_of(self._optimizer)
        if how is How.COPIED or not _are_on_gpu(parameters):
            return How.COPIED
        state = self._optimizer.state  # what is counted needn't be looked for, one by one
        there = len(state) == len(parameters) or all(one in state for one in parameters if one.grad is not None)
        return how if there else How.COPIED

    def _over_all(self, groups: list[dict[str, Any]]) -> How:
        settings = [
            (*map(group.get, _SETTINGS), type(group["lr"]), *map(type, group.get("betas", ())), len(group["params"]))
            for group in groups
        ]
        if settings != self._settings:
            self._settings, self._how = settings, how_over_all(self._optimizer)
        return self._how

    def ask(self) -> Sequence[Tensor]:
        """Take what Adam will take after its first write, by the same operation on the same tensors.

        When it is let go, the allocator keeps it, and the update gets the same blocks. Parameters that have no gradient
        this time count too: to look at each of them would take longer.
        """
        entries = self._optimizer.state.values()
        squares = [entry["exp_avg_sq"] for entry in entries if "exp_avg_sq" in entry]
        return torch._foreach_sqrt(squares)  # noqa: SLF001  there is no public name for it


def _are_on_gpu(parameters: list[nn.Parameter]) -> bool:
    return all(map(attrgetter("is_cuda"), parameters))


def how_over_all(optimizer: Optimizer) -> How:
    """How an update over all tensors at once uses memory, wherever they are."""
    groups, parameters = optimizer.param_groups, parameters_of(optimizer)
    plain = all(map(_is_plain, parameters))
    if not plain or any(group["foreach"] is False or group["differentiable"] for group in groups):
        return How.COPIED
    if any(isinstance(one, Tensor) for group in groups for one in (group["lr"], *group.get("betas", ()))):
        return How.COPIED
    if type(optimizer) is SGD:
        return How.WHOLE if _sgd_asks_first(optimizer) else How.COPIED
    return How.ASKED if type(optimizer) in _KNOWN and _adam_can_be_asked(optimizer) else How.COPIED


def _sgd_asks_first(optimizer: Optimizer) -> bool:
    """Whether SGD allocates nothing after its first write, as it does in its common form.

    Decayed gradients are new tensors, and all that follows is in place. A second group with a decay, or a second type,
    would allocate when the first is written already.
    """
    if any(group["weight_decay"] or group["maximize"] for group in optimizer.param_groups[1:]):
        return False
    return len({(one.device, one.dtype) for one in parameters_of(optimizer)}) == 1


def _adam_can_be_asked(optimizer: Optimizer) -> bool:
    """Whether Adam allocates roots of its squares and nothing else, as it does in its common form."""
    for group in optimizer.param_groups:
        decays = group["weight_decay"] and type(optimizer) is Adam and not group.get("decoupled_weight_decay")
        if decays or group["maximize"] or group["amsgrad"] or group["capturable"]:
            return False
    floating = all(one.is_floating_point() for one in parameters_of(optimizer))
    return floating and _adam_takes_roots()


@functools.cache
def _adam_takes_roots() -> bool:
    """Whether this torch's Adam takes what we think: tried on numbers of our own."""
    return all(_late(kind) == ["aten::_foreach_sqrt"] for kind in (Adam, AdamW))


def _late(kind: type[Adam]) -> list[str]:
    """What an update makes after its first write, by the names of operations."""
    parameter = nn.Parameter(torch.ones(3, device="cpu"))
    optimizer = kind([parameter], foreach=True)
    make_step: Any = getattr(kind.step, "__wrapped__", kind.step)  # beneath hooks that are anybody's
    with torch.inference_mode(mode=False):
        for _ in range(2):  # the first one makes the state
            parameter.grad = torch.ones_like(parameter)
            watch = _Late()
            with watch:
                make_step(optimizer)
    return watch.found


class _Late(TorchDispatchMode):
    """Notes operations that make tensors like the parameters after one that writes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []
        self._written = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        out = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:  # noqa: SLF001  there is no public name for it
            self._written = True
        elif self._written and any(isinstance(one, Tensor) and one.dim() for one in _flat(out)):
            self.found.append(func._schema.name)  # noqa: SLF001  as above
        return out


def _flat(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (list, tuple)) else [out]


def _is_plain(parameter: nn.Parameter) -> bool:
    sparse = parameter.grad is not None and parameter.grad.is_sparse
    return type(parameter) in {Tensor, nn.Parameter} and not sparse
