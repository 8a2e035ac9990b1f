"""Activation checkpointing of a model's blocks.

A checkpointed block keeps only its inputs and recomputes its forward pass during backward. `torch.utils.checkpoint`
alone would update BatchNorm's running statistics twice; the recomputation here leaves them unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as run_checkpointed

from ..errors import UsageError, quote
from ._patch import Patch

_MIN_LAYERS = 3  # a smaller block isn't worth recomputing


def blocks(model: nn.Module) -> tuple[str, ...]:
    """Return the paths of a model's repeated blocks: elements of its lists and sequences, outermost first."""
    return tuple(_blocks(model, ""))


def _blocks(module: nn.Module, path: str) -> Iterator[str]:
    is_container = isinstance(module, (nn.Sequential, nn.ModuleList))
    for name, child in module.named_children():
        child_path = f"{path}.{name}" if path else name
        if (
            is_container
            and not isinstance(child, (nn.Sequential, nn.ModuleList))
            and _count_layers(child) >= _MIN_LAYERS
        ):
            yield child_path
        else:
            yield from _blocks(child, child_path)


def _count_layers(module: nn.Module) -> int:
    return sum(1 for part in module.modules() if not any(True for _ in part.children()))


def checkpoint(model: nn.Module, names: Iterable[str]) -> Patch:
    """Checkpoint the blocks at these paths.

    Raises:
        UsageError: the model has no such block, or the block's forward has been replaced already.
    """
    patched = [_find_block(model, name) for name in names]
    for block in patched:
        block.forward = _checkpointed(block, block.forward)

    def undo() -> None:
        for block in patched:
            block.__dict__.pop("forward", None)

    return Patch(undo)


def _find_block(model: nn.Module, name: str) -> nn.Module:
    try:
        block = model.get_submodule(name)
    except AttributeError:
        raise UsageError(f"the model has no block {quote(name)}", "use a name from model.named_modules()") from None
    if "forward" in block.__dict__:
        raise UsageError(f"the forward of block {quote(name)} has been replaced already", "undo that first")
    return block


def _checkpointed(block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    batch_norms = [part for part in block.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _frozen_statistics(batch_norms)

    def run(*args: Any, **kwargs: Any) -> Any:
        if not (block.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        return run_checkpointed(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return run


@contextmanager
def _frozen_statistics(batch_norms: list[nn.modules.batchnorm._BatchNorm]) -> Iterator[None]:
    """Normalize by the batch without updating the running statistics."""
    before = [(norm.momentum, norm.num_batches_tracked) for norm in batch_norms]
    for norm in batch_norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, tracked) in zip(batch_norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, tracked
