"""Activation checkpointing of a model's blocks.

A checkpointed block keeps only its inputs and recomputes its forward pass during backward. `torch.utils.checkpoint`
alone would write to buffers and attributes twice, starting from what the first forward left, and draw other numbers
from Python and NumPy. The recomputation here runs on copies of them from before the first forward.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint as run_checkpointed

from ..errors import UsageError, quote
from ._module_attributes import attribute_tables, is_copied, is_internal, rebind
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


def apply_checkpointing(model: nn.Module, setting: str | Sequence[str]) -> Patch:
    """Checkpoint what `Settings.checkpointing` names.

    Raises:
        UsageError: the model has no such block, or the block's forward has been replaced already.
    """
    if isinstance(setting, str):
        setting = blocks(model) if setting == "blocks" else ()
    return checkpoint(model, setting)


def checkpoint(model: nn.Module, names: Iterable[str]) -> Patch:
    """Checkpoint the blocks at these paths.

    Raises:
        UsageError: the model has no such block, or the block's forward has been replaced already.
    """
    patched = [find_block(model, name) for name in names]
    for block in patched:
        block.forward = _CheckpointedForward(block)

    def undo() -> None:
        for block in patched:
            block.__dict__.pop("forward", None)

    return Patch(undo)


def find_block(model: nn.Module, name: str) -> nn.Module:
    """Return the block at a path, whose forward is about to be replaced.

    Raises:
        UsageError: the model has no such block, or the block's forward has been replaced already.
    """
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
        return nullcontext(), _recomputation(_BlockState(self._block), _host_rng_states())


class _BlockState:
    """The buffers and attributes that a block has now: spectral_norm's vectors, a codebook, a counter, a hidden state.

    The statistics of BatchNorm are not copied: the recomputation leaves them out.
    """

    def __init__(self, block: nn.Module) -> None:
        modules = list(block.modules())
        self.norms = [module for module in modules if isinstance(module, _NormBase)]
        buffers: list[Any] = [module._buffers for module in modules if not isinstance(module, _NormBase)]
        tables = [table for table in buffers if isinstance(table, dict)]  # that of a ScriptModule is none
        self._tables = [*tables, *attribute_tables(modules)]
        copies: dict[int, Tensor] = {}  # by the id of the original, so that what was shared is shared again
        self._values = [
            {name: _copy(value, copies) for name, value in table.items() if not is_internal(name)}
            for table in self._tables
        ]

    @contextmanager
    def bound(self) -> Iterator[None]:
        """Give the block the copies, then what it had; the buffers themselves may be part of another graph."""
        later_values = [dict(table) for table in self._tables]
        for table, values in zip(self._tables, self._values, strict=True):
            rebind(table, values)
        try:
            yield
        finally:
            for table, values in zip(self._tables, later_values, strict=True):
                rebind(table, values)


def _copy(value: Any, copies: dict[int, Tensor]) -> Any:
    if not isinstance(value, Tensor) or not is_copied(value):
        return value
    if type(value) is Tensor and detect_fake_mode() is not None:  # a real tensor in a trace, which can't be copied
        return value
    if id(value) not in copies:
        copies[id(value)] = value.clone()
    return copies[id(value)]


def _host_rng_states() -> tuple[Any, Any]:
    """Return the random states of Python and NumPy; torch's checkpoint restores those of torch."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state(legacy=False)


def _set_host_rng_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy"].random.set_state(states[1])


@contextmanager
def _recomputation(state: _BlockState, rng_states: tuple[Any, Any]) -> Iterator[None]:
    """Draw the same random numbers, and normalize by the batch without updating the running statistics again."""
    later_states = _host_rng_states()
    with state.bound():
        before = [(norm.momentum, norm.num_batches_tracked) for norm in state.norms]
        _set_host_rng_states(rng_states)
        for norm in state.norms:
            norm.momentum, norm.num_batches_tracked = 0.0, None
        try:
            yield
        finally:
            _set_host_rng_states(later_states)
            for norm, (momentum, tracked) in zip(state.norms, before, strict=True):
                norm.momentum, norm.num_batches_tracked = momentum, tracked
