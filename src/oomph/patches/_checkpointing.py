"""Activation checkpointing put onto blocks of a model, and taken off again.

A block's forward keeps only its inputs and is run once more in the backward pass. In that second run BatchNorm must not
count the batch a second time, which plain `torch.utils.checkpoint` lets it do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as run_checkpointed

from ..errors import UsageError
from ._patch import Patch

_LEAVES = 3  # a block worth running twice has at least so many layers


def blocks(model: nn.Module) -> tuple[str, ...]:
    """Paths of the repeated blocks of a model: the elements of its lists and sequences, the outermost first found."""
    return tuple(_blocks(model, ""))


def _blocks(module: nn.Module, path: str) -> Iterator[str]:
    listed = isinstance(module, (nn.Sequential, nn.ModuleList))
    for name, child in module.named_children():
        here = f"{path}.{name}" if path else name
        if listed and not isinstance(child, (nn.Sequential, nn.ModuleList)) and _leaves(child) >= _LEAVES:
            yield here
        else:
            yield from _blocks(child, here)


def _leaves(module: nn.Module) -> int:
    return sum(1 for part in module.modules() if not any(True for _ in part.children()))


def checkpoint(model: nn.Module, names: Iterable[str]) -> Patch:
    """Checkpoint the blocks of these paths.

    Raises:
        UsageError: the model has no such block.
    """
    chosen = [_find(model, name) for name in names]
    for block in chosen:
        block.forward = _twice(block, block.forward)

    def undo() -> None:
        for block in chosen:
            block.__dict__.pop("forward", None)

    return Patch(undo)


def _find(model: nn.Module, name: str) -> nn.Module:
    try:
        block = model.get_submodule(name)
    except AttributeError:
        raise UsageError(f"the model has no block {name!r}", "name one of model.named_modules()") from None
    if "forward" in block.__dict__:
        raise UsageError(f"the forward of block {name!r} has been replaced already", "undo that first")
    return block


def _twice(block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    norms = [part for part in block.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _uncounted(norms)

    def run(*args: Any, **kwargs: Any) -> Any:
        if not (block.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        return run_checkpointed(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return run


@contextmanager
def _uncounted(norms: list[nn.modules.batchnorm._BatchNorm]) -> Iterator[None]:
    """Let BatchNorm normalize by the batch without counting it: nothing of it goes into the running statistics."""
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, counted) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, counted
