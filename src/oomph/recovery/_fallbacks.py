"""Fallbacks for when micro-batches can't be smaller: checkpointing, and with permission precision and image size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .. import patches
from ..batch import tensors_in
from ._config import GuardConfig
from ._memory import eager_modules
from ._micro_batches import ForwardMode
from ._retry_policy import LastFallback
from ._step_report import Fallback

_MAX_RESIZES = 3


class BlockCheckpointing:
    """Activation checkpointing of the model's blocks: the largest one, then 2, 4, 8 and so on."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._patch: patches.Patch | None = None
        self._count = 0  # checkpointed blocks
        self._names: list[str] = []
        self._output_bytes: dict[nn.Module, int] = {}

    @property
    def steps(self) -> int:
        """How often the number of checkpointed blocks can be doubled."""
        return len(patches.blocks(self._model)).bit_length()

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
        # A block whose forward is patched already stays as it is.
        self._names = [
            name for name in patches.blocks(self._model) if "forward" not in vars(self._model.get_submodule(name))
        ]
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
            self._patch = patches.checkpoint(self._model, largest_first[: self._count])

    def _size(self, name: str) -> int:
        return sum(self._output_bytes.get(part, 0) for part in self._model.get_submodule(name).modules())


def last_fallbacks(
    checkpointing: BlockCheckpointing, config: GuardConfig, mode: ForwardMode
) -> tuple[LastFallback, ...]:
    """Return the fallbacks for when single samples don't fit, cheapest first."""
    checkpoint = Fallback("checkpoint", "checkpointing more of the largest blocks", "up to a third more time")
    fallbacks = [LastFallback(checkpoint, checkpointing.extend, checkpointing.reduce)] * checkpointing.steps
    if "precision" in config.allow:
        lower = Fallback("precision", "running in bfloat16 autocast", "rounding to 8 bits, as you allowed")
        fallbacks.append(LastFallback(lower, mode.lower_precision, mode.reset_precision))
    if "size" in config.allow:
        smaller = Fallback("size", "downscaling the images", "detail is lost, as you allowed")
        fallbacks += [LastFallback(smaller, mode.resize_once_more, mode.resize_once_less)] * _MAX_RESIZES
    return tuple(fallbacks)
