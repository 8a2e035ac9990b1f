"""Rules about mixed precision."""

from __future__ import annotations

from ._backward_in_autocast import BACKWARD_IN_AUTOCAST
from ._deprecated_amp import DEPRECATED_AMP
from ._fp16_adam_eps import FP16_ADAM_EPS
from ._half_with_scaler import HALF_WITH_SCALER
from ._scaler_bypassed import SCALER_BYPASSED
from ._scaler_not_updated import SCALER_NOT_UPDATED
from ._scaler_with_bf16 import SCALER_WITH_BF16
from ._unscale_after_step import UNSCALE_AFTER_STEP

PRECISION_RULES = (
    HALF_WITH_SCALER,
    SCALER_WITH_BF16,
    BACKWARD_IN_AUTOCAST,
    DEPRECATED_AMP,
    SCALER_NOT_UPDATED,
    SCALER_BYPASSED,
    UNSCALE_AFTER_STEP,
    FP16_ADAM_EPS,
)

__all__ = [
    "BACKWARD_IN_AUTOCAST",
    "DEPRECATED_AMP",
    "FP16_ADAM_EPS",
    "HALF_WITH_SCALER",
    "PRECISION_RULES",
    "SCALER_BYPASSED",
    "SCALER_NOT_UPDATED",
    "SCALER_WITH_BF16",
    "UNSCALE_AFTER_STEP",
]
