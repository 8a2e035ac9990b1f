"""Fallbacks for when micro-batches can't be smaller: checkpointing, and with permission precision and image size."""

from __future__ import annotations

from ..patches import BlockCheckpointing
from ._config import GuardConfig
from ._retry_policy import LastFallback
from ._step_report import Fallback
from .splitting import ForwardMode

_MAX_RESIZES = 3


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
