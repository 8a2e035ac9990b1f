"""Substitutes for operations whose results depend on data, which fake tensors do not have.

A boolean mask, `nonzero` or NMS keeps the Job's `mask_fraction` of the elements. A number read from a tensor
(`.item()`, `if mask.any()`) is 1, 0.5 or a fixed boolean. Each substitute adds a sentence to the trace's assumptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class DataAssumptions:
    """Assumptions about the data.

    Attributes:
        mask_fraction: the fraction of elements that a mask keeps.
        boolean: the value of a boolean that is read from a tensor.
    """

    mask_fraction: float = 1.0
    boolean: bool = True

    def count(self, size: int) -> int:
        """Return how many of `size` elements a mask keeps: at least one."""
        return max(math.ceil(size * self.mask_fraction), 1) if size else 0


Substitute = Callable[[Any, tuple[Any, ...], dict[str, Any], DataAssumptions], Any]


def substitute_for(func: Any, args: tuple[Any, ...]) -> tuple[Substitute, str] | None:
    """Return the substitute for a data-dependent operation and its assumption; None for all other operations."""
    name = func.name() if hasattr(func, "name") else str(func)
    if name in _SUBSTITUTES:
        return _SUBSTITUTES[name], _ASSUMPTIONS[_SUBSTITUTES[name]]
    if name in {"aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}:
        indices = args[1]
        if any(isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8} for index in indices):
            return _masked_index, _ASSUMPTIONS[_masked_index]
    return None


def _scalar(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    dtype = args[0].dtype
    if dtype == torch.bool:
        return assumed.boolean
    # 0.5 is a valid divisor, and rounds down to the first index of a list.
    return 0.5 if dtype.is_floating_point else 1


def _nonzero(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    x = args[0]
    return torch.empty((assumed.count(x.numel()), x.dim()), dtype=torch.int64, device=x.device)


def _masked_select(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    return args[0].new_empty(assumed.count(args[1].numel()))


def _unique(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    x = args[0]
    indices = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    return x.new_empty(assumed.count(x.numel())), indices, torch.empty_like(indices)


def _nms(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    return torch.empty(assumed.count(args[0].shape[0]), dtype=torch.int64, device=args[0].device)


def _ctc_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    """Assume targets of full length; the forward variables are one number per step and state."""
    del func, kwargs, assumed
    probabilities, targets = args[0], args[1]
    steps, count = probabilities.shape[0], probabilities.shape[1]
    longest = targets.shape[1] if targets.dim() > 1 else -(-targets.numel() // count)
    return probabilities.new_empty(count), probabilities.new_empty(count, steps, 2 * longest + 1)


def _ctc_loss_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs, assumed
    return torch.empty_like(args[1])


def _masked_index(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    """Replace each mask by index tensors."""
    indices: list[Tensor | None] = []
    for index in args[1]:
        if isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}:
            count = assumed.count(index.numel())
            indices += [torch.empty(count, dtype=torch.int64, device=index.device) for _ in range(index.dim())]
        else:
            indices.append(index)
    return func(args[0], indices, *args[2:], **kwargs)


_SUBSTITUTES: dict[str, Substitute] = {
    "aten::_local_scalar_dense": _scalar,
    "aten::nonzero": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::_unique2": _unique,
    "torchvision::nms": _nms,
    "aten::_ctc_loss": _ctc_loss,
    "aten::_ctc_loss.Tensor": _ctc_loss,
    "aten::_ctc_loss_backward": _ctc_loss_backward,
    "aten::_ctc_loss_backward.Tensor": _ctc_loss_backward,
}
_MASK = "a boolean mask keeps the Job's `mask_fraction` of the elements"
_CTC = "every target of the CTC loss has its full length"
_ASSUMPTIONS: dict[Substitute, str] = {
    _scalar: "a number read from a tensor is 1, 0.5 or a fixed boolean",
    _nonzero: "nonzero returns the Job's `mask_fraction` of the elements",
    _masked_select: _MASK,
    _unique: "unique returns the Job's `mask_fraction` of the elements",
    _nms: "NMS keeps the Job's `mask_fraction` of the boxes",
    _ctc_loss: _CTC,
    _ctc_loss_backward: _CTC,
    _masked_index: _MASK,
}
