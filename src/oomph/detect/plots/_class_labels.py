"""Class names as charts show them."""

from __future__ import annotations

from collections.abc import Sequence

from ...charts import drawable_texts

MAX_LISTED = 20  # classes that a legend names, and whose numbers a matrix shows
_MAX_LENGTH = 20


def class_labels(names: Sequence[str]) -> list[str]:
    """Return short names on one line; one with characters that no font has is preceded by the class number."""
    labels = drawable_texts(names, _MAX_LENGTH)
    return [
        f"{number} {label}" if label.count("?") > name.count("?") else label
        for number, (name, label) in enumerate(zip(names, labels, strict=True))
    ]
