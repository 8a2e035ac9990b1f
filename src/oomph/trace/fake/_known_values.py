"""Values of small tensors that depend on neither weights nor data: schedules, lengths, configuration, random draws.

A fake tensor has no values, so code that reads one would take an arbitrary branch. Small tensors keep their value in
an attribute of the fake tensor for as long as every operation on them has only such inputs.

A random draw has three values, at the middle, the low and the high end of its range. A branch that all three agree on
is certain; otherwise it is traced each way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map

MAX_ELEMENTS = 2**18  # a mask of 512 sequences of 512 tokens
MAX_RANDOM_ELEMENTS = 1024  # more random numbers are noise, which has no middle
EXAMPLE = "the Job's example batch stands for the data"
EXAMPLE_MASK = "the mask of the Job's example batch stands for those of the data"
DRAWS = 3  # values of a random draw
_QUANTILES = (0.5, 0.0, 0.999)
_ATTRIBUTE = "_oomph_known"
_UNIFORM = {"aten::rand", "aten::rand_like", "aten::uniform", "aten::uniform_"}
_EMPTY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}
_FILLED = {
    "aten::ones_like", "aten::zeros_like", "aten::full_like", "aten::new_ones", "aten::new_zeros", "aten::new_full",
}  # fmt: skip
_INTEGERS = {"aten::randint", "aten::randint_like", "aten::random_"}


class Known(NamedTuple):
    """The value of a tensor.

    Attributes:
        values: one real tensor, or one per draw if the value is random.
        assumption: what the value rests on, as part of a sentence; empty if it is certain.
    """

    values: tuple[Tensor, ...]
    assumption: str = ""

    def at(self, draw: int) -> Tensor:
        """Return the value for one of the draws."""
        return self.values[draw if len(self.values) > 1 else 0]

    @property
    def is_certain(self) -> bool:
        """True if the value is the same for all draws."""
        with no_dispatch():
            return all(torch.equal(value, self.values[0]) for value in self.values[1:])


def known(tensor: Tensor) -> Known | None:
    """Return the value of a fake tensor; None if it is unknown. Weights are always unknown."""
    value: Known | None = getattr(tensor, _ATTRIBUTE, None)
    if value is None or tensor.requires_grad or getattr(tensor, "_is_param", False):
        return None
    # `forget` empties the storage that a value shares with the values of its views.
    is_forgotten = any(part.numel() and not part.untyped_storage().nbytes() for part in value.values)
    return None if is_forgotten else value


def set_known(tensor: Tensor, value: Tensor, assumption: str = "") -> None:
    """Give a fake tensor a copy of a real value, if it is small."""
    is_real = not isinstance(value, FakeTensor) and not value.is_meta
    if is_real and value.numel() <= MAX_ELEMENTS and value.layout is torch.strided:
        with no_dispatch():
            setattr(tensor, _ATTRIBUTE, Known((value.detach().cpu().clone(),), assumption))


def forget(tensor: Tensor) -> None:
    """Make the value of a fake tensor and of all its views unknown."""
    value: Known | None = getattr(tensor, _ATTRIBUTE, None)
    if value is not None:
        delattr(tensor, _ATTRIBUTE)
        for part in value.values:
            with no_dispatch():
                part.untyped_storage().resize_(0)


def mark_example(tensor: Tensor) -> None:
    """Mark a tensor of the Job's batch: only lists of integers, such as lengths, and masks stand for the data."""
    value = known(tensor)
    if value is None:
        return
    if tensor.dtype.is_floating_point:
        forget(tensor)
    elif _is_mask(value):
        setattr(tensor, _ATTRIBUTE, Known(value.values, EXAMPLE_MASK))
    elif tensor.dtype == torch.bool or tensor.dim() > 1:
        forget(tensor)
    else:
        setattr(tensor, _ATTRIBUTE, Known(value.values, EXAMPLE))


def _is_mask(value: Known) -> bool:
    """Return True for zeros and ones in several dimensions that were not drawn."""
    first = value.values[0]
    with torch._C.DisableTorchFunction(), no_dispatch():
        return len(value.values) == 1 and first.dim() > 1 and bool(((first == 0) | (first == 1)).all())


def evaluate(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    """Run an operation on the values of its inputs; return its result for each draw, or None if a value is unknown.

    Operations that write into an input write into its value too.
    """
    inputs = list(_tensors(args, kwargs))
    values = [known(tensor) if isinstance(tensor, FakeTensor) else _own_value(tensor) for tensor in inputs]
    if any(value is None for value in values):
        return None
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    draws = DRAWS if is_random or any(len(value.values) > 1 for value in values if value is not None) else 1
    if draws > 1 and func._schema.is_mutable:
        _expand(inputs, draws)
    with no_dispatch():
        return [_run(func, args, kwargs, draw, is_random=is_random) for draw in range(draws)]


def is_filled(func: Any) -> bool:
    """Return True for operations that take only shape and dtype from their input, such as `ones_like`."""
    return func._schema.name in _FILLED


def fill(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Run an operation that takes only shape and dtype from its input."""
    like: Tensor = args[0]
    with no_dispatch():
        empty = torch.empty((), dtype=like.dtype).expand(like.shape)
        result: Tensor = func(empty, *args[1:], **kwargs)
    return result


def attach(out: Any, results: list[Any], assumption: str) -> None:
    """Give the results of an operation their values."""
    columns = zip(tree_leaves(out), *(tree_leaves(result) for result in results), strict=False)
    for leaf, *values in columns:
        if isinstance(leaf, FakeTensor) and isinstance(values[0], Tensor) and leaf.shape == values[0].shape:
            setattr(leaf, _ATTRIBUTE, Known(tuple(values), assumption))


def forget_written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Forget the values of the inputs that an operation overwrites with something unknown."""
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for tensor in tree_leaves(value):
                if isinstance(tensor, FakeTensor):
                    forget(tensor)
    if isinstance(kwargs.get("out"), FakeTensor):
        forget(kwargs["out"])


def is_small_enough(func: Any, out: Any) -> bool:
    """Return True if an operation's results are small enough to be computed."""
    is_noise = torch.Tag.nondeterministic_seeded in func.tags or func._schema.name in _EMPTY
    return _has_at_most(MAX_RANDOM_ELEMENTS if is_noise else MAX_ELEMENTS, out)


def _has_at_most(elements: int, out: Any) -> bool:
    if isinstance(out, Tensor):
        return out.numel() <= elements and out.layout is torch.strided
    return all(not isinstance(leaf, Tensor) or _has_at_most(elements, leaf) for leaf in tree_leaves(out))


def assumption_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return what the values of the inputs rest on; empty if they are certain."""
    values = (known(tensor) for tensor in _tensors(args, kwargs))
    return next((value.assumption for value in values if value is not None and value.assumption), "")


def certain_value(tensor: Tensor) -> Tensor | None:
    """Return the value of a tensor if it rests on nothing assumed or random."""
    value = known(tensor)
    return value.values[0] if value is not None and not value.assumption and value.is_certain else None


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))


def _own_value(tensor: Tensor) -> Known | None:
    """Return the value of a real tensor of the user's code; None if it is large."""
    return Known((tensor,)) if tensor.numel() <= MAX_ELEMENTS and type(tensor) is Tensor else None


def _expand(inputs: list[Tensor], draws: int) -> None:
    """Give tensors with one value a value per draw before a random write into them."""
    for tensor in inputs:
        value = known(tensor)
        if value is not None and len(value.values) == 1:
            with no_dispatch():
                copies = tuple(value.values[0].clone() for _ in range(draws))
            setattr(tensor, _ATTRIBUTE, Known(copies, value.assumption))


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], draw: int, *, is_random: bool) -> Any:
    def real(leaf: Any) -> Any:
        if isinstance(leaf, FakeTensor):
            value = known(leaf)
            return None if value is None else value.at(draw)
        return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf

    real_args, real_kwargs = tree_map(real, (args, kwargs))
    if "generator" in real_kwargs:
        real_kwargs["generator"] = None  # the user's generator stays as it is
    result = func(*real_args, **real_kwargs)
    if func._schema.name in _EMPTY:
        return result.zero_()  # whatever was in memory would differ between runs
    return _at_quantile(func, real_args, real_kwargs, result, _QUANTILES[draw]) if is_random else result


def _at_quantile(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], drawn: Any, quantile: float) -> Any:
    """Replace a uniform draw by a quantile of its range; other draws stay as they are."""
    name = func._schema.name
    if name in _UNIFORM:
        low, high = (*args[1:], *(0.0, 1.0)[len(args) - 1 :]) if "uniform" in name else (0.0, 1.0)
        low, high = kwargs.get("from", low), kwargs.get("to", high)
        return drawn.fill_(low + quantile * (high - low))
    if name in _INTEGERS:
        bounds = [value for value in args if isinstance(value, int) and not isinstance(value, bool)]
        low, high = (bounds[0], bounds[1]) if len(bounds) > 1 else (0, bounds[0] if bounds else 2)
        return drawn.fill_(low + int(quantile * max(high - low, 1)))
    if name.startswith("aten::bernoulli"):
        probability = next((value for value in args[1:] if isinstance(value, float)), args[0])
        return drawn.copy_(torch.as_tensor(probability) > quantile)
    return drawn
