"""Layers with weights, and the bytes of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...units import count_of

_KINDS = {"Conv": "convolution", "Linear": "linear layer", "Embedding": "embedding"}


def weighted_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that hold a matrix or larger weight, by path; norms and biases hold none."""
    for name, module in model.named_modules():
        if any(parameter.dim() > 1 for parameter in module.parameters(recurse=False)):
            yield name, module


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of parameters and buffers; tensors that share memory count once."""
    storages = [tensor.untyped_storage() for tensor in _stored_tensors((*model.parameters(), *model.buffers()))]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())  # noqa: SLF001  its address


def _stored_tensors(tensors: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the plain tensors inside of quantized ones."""
    for tensor in tensors:
        if hasattr(tensor, "__tensor_flatten__"):
            yield from _stored_tensors(getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        else:
            yield tensor


def describe(layers: Iterable[nn.Module]) -> str:
    """Count layers by kind: "60 convolutions and 2 embeddings"."""
    kinds = Counter(
        next((kind for prefix, kind in _KINDS.items() if type(layer).__name__.startswith(prefix)), "other layer")
        for layer in layers
    )
    return " and ".join(count_of(count, kind) for kind, count in kinds.most_common())


def relative_difference(before: Any, after: Any) -> float:
    """Return the largest difference of two outputs, relative to the largest output; 0 if there are no floats."""
    pairs = [
        (old.float(), new.float())
        for old, new in zip(pytree.tree_leaves(before), pytree.tree_leaves(after), strict=True)
        if isinstance(old, Tensor) and old.is_floating_point() and old.numel()
    ]
    largest = max((float(old.abs().max()) for old, _ in pairs), default=0.0)
    difference = max((float((old - new).abs().max()) for old, new in pairs), default=0.0)
    return difference / largest if largest else difference


@torch.no_grad()
def outputs_of(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Run a model."""
    return model(*inputs)
