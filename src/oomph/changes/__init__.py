"""Settings put onto a model, live or fake."""

from ._layout import convert_batch, convert_model

__all__ = ["convert_batch", "convert_model"]
