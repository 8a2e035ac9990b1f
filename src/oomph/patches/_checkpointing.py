"""Activation checkpointing of a model's blocks.

A checkpointed block keeps only its inputs and recomputes its forward pass during backward. `torch.utils.checkpoint`
alone would update BatchNorm's running statistics twice and draw other numbers from Python and NumPy; the recomputation
here doesn't. Other buffers that a block's forward changes are changed twice.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
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
        block.forward = _CheckpointedForward(block)

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


class _CheckpointedForward:
    """The forward of a checkpointed block. No closure, so that a copy or a pickle of the model runs its own block."""

    def __init__(self, block: nn.Module) -> None:
        self._block = block

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = type(self._block).forward.__get__(self._block)
        if not (self._block.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        return run_checkpointed(forward, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _recomputation(self._block, _host_rng_states())


def _host_rng_states() -> tuple[Any, Any]:
    """Return the random states of Python and NumPy; torch's checkpoint restores those of torch."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state(legacy=False)


def _set_host_rng_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy"].random.set_state(states[1])


@contextmanager
def _recomputation(block: nn.Module, rng_states: tuple[Any, Any]) -> Iterator[None]:
    """Draw the same random numbers, and normalize by the batch without updating the running statistics again."""
    later_states = _host_rng_states()
    norms = [part for part in block.modules() if isinstance(part, _NormBase)]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    _set_host_rng_states(rng_states)
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        _set_host_rng_states(later_states)
        for norm, (momentum, tracked) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, tracked
