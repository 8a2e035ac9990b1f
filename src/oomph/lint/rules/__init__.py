"""All rules of the linter, by family."""

from __future__ import annotations

from .accumulation import ACCUMULATION_RULES
from .commands import COMMAND_RULES
from .data import DATA_RULES
from .keras import KERAS_RULES
from .leaks import LEAK_RULES
from .out_of_memory import OUT_OF_MEMORY_RULES
from .precision import PRECISION_RULES

RULES = (
    *ACCUMULATION_RULES,
    *PRECISION_RULES,
    *LEAK_RULES,
    *DATA_RULES,
    *OUT_OF_MEMORY_RULES,
    *COMMAND_RULES,
    *KERAS_RULES,
)

__all__ = [
    "ACCUMULATION_RULES",
    "COMMAND_RULES",
    "DATA_RULES",
    "KERAS_RULES",
    "LEAK_RULES",
    "OUT_OF_MEMORY_RULES",
    "PRECISION_RULES",
    "RULES",
]
