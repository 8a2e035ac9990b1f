"""Activation checkpointing of as many of a model's blocks as memory requires, the largest ones first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..batch import tensors_in
from ._checkpointing import blocks, checkpoint
from ._patch import Patch


class BlockCheckpointing:
    """Activation checkpointing of the model's blocks: the largest one, then 2, 4, 8 and so on."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._patch: Patch | None = None
        self._count = 0  # checkpointed blocks
        self._names: list[str] = []
        self._output_bytes: dict[nn.Module, int] = {}

    @property
    def steps(self) -> int:
        """How often the number of checkpointed blocks can be doubled."""
        count = len(blocks(self._model))
        return (count - 1).bit_length() + 1 if count else 0

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Add up the output bytes of every layer, which are about what it keeps for backward."""
        self._output_bytes = {}
        leaves = (module for module in dict.fromkeys(eager_modules(self._model)) if not any(module.children()))
        handles = [module.register_forward_hook(self._add_output) for module in leaves]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _add_output(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        del inputs
        if not torch.compiler.is_compiling():  # the hook must not become part of a compiled graph
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(outputs))
            self._output_bytes[module] = self._output_bytes.get(module, 0) + size

    def extend(self) -> bool:
        """Checkpoint twice as many blocks; return False if there were no more."""
        self._remove()
        self._names = [name for name in blocks(self._model) if _can_checkpoint(self._model.get_submodule(name))]
        before, self._count = self._count, min(max(2 * self._count, 1), len(self._names))
        self._apply()
        return self._count > before

    def reduce(self) -> None:
        """Checkpoint half as many blocks."""
        self._remove()
        self._count //= 2
        self._apply()

    def _remove(self) -> None:
        if self._patch is not None:
            self._patch.undo()
            self._patch = None

    def _apply(self) -> None:
        largest_first = sorted(self._names, key=self._size, reverse=True)
        if self._count:
            self._patch = checkpoint(self._model, largest_first[: self._count])

    def _size(self, name: str) -> int:
        return sum(self._output_bytes.get(part, 0) for part in self._model.get_submodule(name).modules())


def _can_checkpoint(block: nn.Module) -> bool:
    """Return False for blocks whose forward is patched already, and in eval mode, such as those of a teacher."""
    return block.training and "forward" not in vars(block)


def eager_modules(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that run eagerly; a hook inside a compiled module would break its graph."""
    if isinstance(module, torch.jit.ScriptModule):
        return
    if getattr(module, "_compiled_call_impl", None) is None and not hasattr(module, "_orig_mod"):
        yield module
        for child in module.children():
            yield from eager_modules(child)
