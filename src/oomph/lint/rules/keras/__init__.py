"""Rules about Keras and TFLite."""

from __future__ import annotations

from ._keras_arrays_in_memory import KERAS_ARRAYS_IN_MEMORY
from ._keras_sequence_init import KERAS_SEQUENCE_INIT
from ._keras_sequence_outdated import KERAS_SEQUENCE_OUTDATED
from ._tflite_not_full_integer import TFLITE_NOT_FULL_INTEGER

KERAS_RULES = (
    KERAS_ARRAYS_IN_MEMORY,
    KERAS_SEQUENCE_INIT,
    KERAS_SEQUENCE_OUTDATED,
    TFLITE_NOT_FULL_INTEGER,
)

__all__ = [
    "KERAS_ARRAYS_IN_MEMORY",
    "KERAS_RULES",
    "KERAS_SEQUENCE_INIT",
    "KERAS_SEQUENCE_OUTDATED",
    "TFLITE_NOT_FULL_INTEGER",
]
