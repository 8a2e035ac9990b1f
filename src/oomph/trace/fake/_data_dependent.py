"""Substitutes for operations whose results depend on data, which fake tensors do not have.

A boolean mask, `nonzero` or NMS keeps the Job's `mask_fraction` of the elements. A number read from a tensor
(`.item()`, `if mask.any()`) is 1, 0.5 or a fixed boolean. A trace lists each assumption with the line that needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from ._known_values import MAX_RANDOM_ELEMENTS, certain_value, set_known
from ._likely_values import DENSITY


@dataclass(frozen=True)
class DataAssumptions:
    """Assumptions about the data.

    Attributes:
        mask_fraction: the fraction of elements that a mask keeps.
        boolean: the value of a boolean that is read from a tensor.
        draw: which value of a random draw counts: 0 for the middle of its range, 1 for the low end, 2 for the high end.
        other_booleans: True to assume the opposite of every boolean.
        other_numbers: True to assume other numbers than usual.
        other_masks: True for the opposite of every boolean that is read from a mask of the example batch.
    """

    mask_fraction: float = 1.0
    boolean: bool = True
    draw: int = 0
    other_booleans: bool = False
    other_numbers: bool = False
    other_masks: bool = False

    def count(self, size: int) -> int:
        """Return how many of `size` elements a mask keeps: at least one."""
        return max(math.ceil(size * self.mask_fraction), 1) if size else 0

    def kept(self, mask: Tensor) -> int:
        """Return how many elements of a mask are set; every class of a one-hot mask has an even share."""
        value = certain_value(mask)
        if value is not None:
            with no_dispatch():
                return int(value.count_nonzero())
        density = getattr(mask, DENSITY, 1.0)
        return self.count(math.ceil(mask.numel() * density))

    def number(self, dtype: torch.dtype, *, likely: bool | None = None) -> bool | int | float:
        """Return the assumed value of an element; `likely` is the value of most booleans of its kind."""
        if dtype == torch.bool:
            return (self.boolean if likely is None else likely) != self.other_booleans
        # 0.5 is a valid divisor, and rounds down to the first index of a list.
        if dtype.is_floating_point:
            return 0.25 if self.other_numbers else 0.5
        return 2 if self.other_numbers else 1


Substitute = Callable[[Any, tuple[Any, ...], dict[str, Any], DataAssumptions], Any]


@dataclass(frozen=True)
class Assumption:
    """What is assumed about a data-dependent operation.

    Attributes:
        text: the assumption, as part of a sentence.
        substitute: computes the assumed result.
        is_number: True for the operation that reads a number.
        masks: returns the masks among the operation's arguments.
    """

    text: str
    substitute: Substitute
    is_number: bool = False
    masks: Callable[[tuple[Any, ...]], list[Tensor]] = lambda _: []

    def is_certain(self, args: tuple[Any, ...]) -> bool:
        """Return True if the values of all masks are certain, so that nothing has to be assumed."""
        masks = self.masks(args)
        return bool(masks) and all(certain_value(mask) is not None for mask in masks)

    def is_share(self, args: tuple[Any, ...]) -> bool:
        """Return True if a mask is one-hot, so that an even share is assumed, which is not the worst case."""
        return any(hasattr(mask, DENSITY) for mask in self.masks(args))


def substitute_for(func: Any, args: tuple[Any, ...]) -> Assumption | None:
    """Return the assumption about a data-dependent operation; None for all other operations."""
    name = func.name() if hasattr(func, "name") else str(func)
    if name in _SUBSTITUTES:
        return _SUBSTITUTES[name]
    if name in {"aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}:
        indices = args[1]
        if any(_is_mask(index) for index in indices):
            return _MASKED_INDEX
    return None


def _is_mask(index: object) -> bool:
    return isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}


def _number(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    return assumed.number(args[0].dtype)


def _equal(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, args, kwargs, assumed
    return False


def _bincount(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, assumed
    bins = kwargs.get("minlength", args[2] if len(args) > 2 else 0)  # noqa: PLR2004
    return torch.empty(max(bins, 1), dtype=torch.int64)


def _repeat_interleave(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, assumed
    size = kwargs.get("output_size")
    return torch.empty(args[0].numel() if size is None else size, dtype=torch.int64)


def _nonzero(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    x = args[0]
    count = assumed.kept(x)
    out = torch.empty((count, x.dim()), dtype=torch.int64, device=x.device)
    if x.numel() <= MAX_RANDOM_ELEMENTS:
        with no_dispatch():
            first = torch.ones(x.shape).nonzero()[:count]
        set_known(out, first, "the first indices stand for those that nonzero returns")
    return out


def _masked_select(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    return args[0].new_empty(assumed.kept(args[1]))


def _unique(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    x = args[0]
    indices = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    return x.new_empty(assumed.count(x.numel())), indices, torch.empty_like(indices)


def _unique_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumed: DataAssumptions) -> Any:
    del func, kwargs
    x, dim = args[0], args[1]
    shape = list(x.shape)
    shape[dim] = assumed.count(shape[dim])
    indices = torch.empty(x.shape[dim], dtype=torch.int64, device=x.device)
    return x.new_empty(shape), indices, torch.empty_like(indices)


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
        if index is not None and _is_mask(index):
            count = assumed.kept(index)
            indices += [torch.empty(count, dtype=torch.int64, device=index.device) for _ in range(index.dim())]
        else:
            indices.append(index)
    return func(args[0], indices, *args[2:], **kwargs)


_MASK = "a boolean mask keeps the Job's `mask_fraction` of the elements"
_MASKED_INDEX = Assumption(_MASK, _masked_index, masks=lambda args: [index for index in args[1] if _is_mask(index)])
_CTC = Assumption("every target of the CTC loss has its full length", _ctc_loss)
_CTC_BACKWARD = Assumption(_CTC.text, _ctc_loss_backward)
_UNIQUE = "unique returns the Job's `mask_fraction` of the elements"
_SUBSTITUTES: dict[str, Assumption] = {
    "aten::_local_scalar_dense": Assumption("a number read from a tensor is assumed", _number, is_number=True),
    "aten::equal": Assumption("two tensors that depend on data differ", _equal),
    "aten::nonzero": Assumption(
        "nonzero returns the Job's `mask_fraction` of the elements", _nonzero, masks=lambda args: [args[0]]
    ),
    "aten::masked_select": Assumption(_MASK, _masked_select, masks=lambda args: [args[1]]),
    "aten::_unique2": Assumption(_UNIQUE, _unique),
    "aten::unique_dim": Assumption(_UNIQUE, _unique_rows),
    "aten::unique_consecutive": Assumption(_UNIQUE, _unique),
    "aten::bincount": Assumption("bincount has `minlength` bins", _bincount),
    "aten::repeat_interleave.Tensor": Assumption("each element is repeated once", _repeat_interleave),
    "torchvision::nms": Assumption("NMS keeps the Job's `mask_fraction` of the boxes", _nms),
    "aten::_ctc_loss": _CTC,
    "aten::_ctc_loss.Tensor": _CTC,
    "aten::_ctc_loss_backward": _CTC_BACKWARD,
    "aten::_ctc_loss_backward.Tensor": _CTC_BACKWARD,
}
