"""The rungs beyond smaller pieces: checkpointing, and, with the user's yes, precision and size."""

from __future__ import annotations

from typing import Any

from torch import nn

from .. import changes
from ._ladder import Last
from ._options import Options
from ._piecework import Setting
from ._step_report import Rung

_SMALLEST = 3  # how often images may be made smaller


class _Checkpointing:
    """Blocks of the model that are computed again in backward instead of being kept."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._handle: Any = None

    def climb(self) -> bool:
        # A block whose forward somebody has replaced stays as they made it.
        names = [name for name in changes.blocks(self._model) if "forward" not in vars(self._model.get_submodule(name))]
        if not names:
            return False
        self._handle = changes.checkpoint(self._model, names)
        return True

    def leave(self) -> None:
        if self._handle is not None:
            self._handle.undo()
            self._handle = None


def last_rungs(model: nn.Module, options: Options, setting: Setting) -> tuple[Last, ...]:
    """What may be done when single samples don't fit, cheapest first."""
    blocks = _Checkpointing(model)
    found = [
        Last(
            Rung("checkpoint", "checkpointing the blocks of the model", "about a third more time, same gradient"),
            blocks.climb,
            blocks.leave,
        )
    ]
    if "precision" in options.allow:
        found.append(
            Last(
                Rung("precision", "running in autocast to bfloat16", "rounding to 8 bits, as you allowed"),
                lambda: _lower(setting),
                lambda: setattr(setting, "precision", options.precision),
            )
        )
    if "size" in options.allow:
        found += [
            Last(
                Rung("size", "making images smaller", "detail is lost, as you allowed"),
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
