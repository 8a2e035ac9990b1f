"""One row of an index: a Header as a record of a structured array."""

from __future__ import annotations

from typing import Any

import numpy as np

from .headers import Flag, Header

FORMATS = ("", "jpeg", "png", "webp", "bmp", "gif", "tiff", "npy")
DTYPES = (
    "uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64",
)  # fmt: skip
RECORD = np.dtype(
    [
        ("size", "<i8"),
        ("mtime_ns", "<i8"),
        ("coefficients", "<i8"),
        ("width", "<u4"),
        ("height", "<u4"),
        ("block_width", "<u4"),
        ("block_height", "<u4"),
        ("restart", "<u4"),
        ("reason", "<u4"),
        ("bands", "<u2"),
        ("flags", "<u2"),
        ("compression", "<u2"),
        ("format", "u1"),
        ("dtype", "u1"),
        ("orientation", "u1"),
        ("spare", "u1", (3,)),
    ]
)
_NUMBERS = (
    "width", "height", "bands", "orientation", "coefficients", "restart", "block_width", "block_height",
    "compression", "size", "mtime_ns",
)  # fmt: skip


def header_of(row: Any) -> Header:
    """A row as a Header."""
    return Header(
        format=FORMATS[row["format"]],
        dtype=DTYPES[row["dtype"]],
        flags=Flag(int(row["flags"])),
        **{name: int(row[name]) for name in _NUMBERS},
    )


def fill(row: Any, header: Header) -> None:
    """Write a Header into a row."""
    for name in _NUMBERS:
        row[name] = getattr(header, name)
    row["format"], row["dtype"] = FORMATS.index(header.format), DTYPES.index(header.dtype)
    row["flags"] = int(header.flags)
