"""The rungs beyond smaller pieces: checkpointing, and, with the user's yes, precision and size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .. import patches
from ._batch import tensors_in
from ._ladder import Last
from ._meter import uncompiled
from ._options import Options
from ._piecework import Setting
from ._step_report import Fallback

_SMALLEST = 3  # how often images may be made smaller


class Checkpointing:
    """Blocks that are computed again in backward instead of being kept: the largest one, then 2, 4 and so on."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._handle: patches.Patch | None = None
        self._count = 0  # blocks that are checkpointed
        self._names: list[str] = []  # all that can be, as they were last looked for
        self._made: dict[nn.Module, int] = {}  # bytes that layers have put out

    @property
    def rungs(self) -> int:
        """How often more of the blocks can be taken."""
        return len(patches.blocks(self._model)).bit_length()

    def measure(self, work: Callable[[], object]) -> None:
        """Do some work, and see what the layers put out: what they keep for backward is about that."""
        self._made = {}
        leaves = (module for module in dict.fromkeys(uncompiled(self._model)) if not any(module.children()))
        handles = [module.register_forward_hook(self._note) for module in leaves]
        try:
            work()
        finally:
            for handle in handles:
                handle.remove()

    def _note(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        del inputs
        if not torch.compiler.is_compiling():  # of a compiled function nothing of this may become part
            size = sum(one.numel() * one.element_size() for one in tensors_in(outputs))
            self._made[module] = self._made.get(module, 0) + size

    def climb(self) -> bool:
        """Checkpoint more blocks; whether there were any left."""
        # A block whose forward somebody else has replaced stays as they made it.
        self._take_off()
        self._names = [
            name for name in patches.blocks(self._model) if "forward" not in vars(self._model.get_submodule(name))
        ]
        before, self._count = self._count, min(max(2 * self._count, 1), len(self._names))
        self._put_on()
        return self._count > before

    def leave(self) -> None:
        """Checkpoint fewer."""
        self._take_off()
        self._count //= 2
        self._put_on()

    def _take_off(self) -> None:
        if self._handle is not None:
            self._handle.undo()
            self._handle = None

    def _put_on(self) -> None:
        largest = sorted(self._names, key=self._size, reverse=True)
        if self._count:
            self._handle = patches.checkpoint(self._model, largest[: self._count])

    def _size(self, name: str) -> int:
        return sum(self._made.get(part, 0) for part in self._model.get_submodule(name).modules())


def last_rungs(blocks: Checkpointing, options: Options, setting: Setting) -> tuple[Last, ...]:
    """What may be done when single samples don't fit, cheapest first."""
    found = [
        Last(
            Fallback(
                "checkpoint", "checkpointing more of the largest blocks", "up to a third more time, same gradient"
            ),
            blocks.climb,
            blocks.leave,
        )
    ] * blocks.rungs
    if "precision" in options.allow:
        found.append(
            Last(
                Fallback("precision", "running in autocast to bfloat16", "rounding to 8 bits, as you allowed"),
                lambda: _lower(setting),
                lambda: setattr(setting, "precision", options.precision),
            )
        )
    if "size" in options.allow:
        found += [
            Last(
                Fallback("size", "making images smaller", "detail is lost, as you allowed"),
                lambda: _shrink(setting),
                lambda: setattr(setting, "resized", setting.resized - 1),
            )
        ] * _SMALLEST
    return tuple(found)


def _lower(setting: Setting) -> bool:
    if setting.precision is not None:
        return False
    setting.precision = "amp-bf16"
    return True


def _shrink(setting: Setting) -> bool:
    setting.resized += 1
    return True
