"""The record of an image in an index: a Header as a row of a structured array."""

from __future__ import annotations

from typing import Any

import numpy as np

from .headers import Header, ImageFlag

FORMATS = ("", "jpeg", "png", "webp", "bmp", "gif", "tiff", "npy")
DTYPES = (
    "uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64",
)  # fmt: skip
RECORD = np.dtype(
    [
        ("file_size", "<i8"),
        ("mtime_ns", "<i8"),
        ("coefficient_bytes", "<i8"),
        ("width", "<u4"),
        ("height", "<u4"),
        ("block_width", "<u4"),
        ("block_height", "<u4"),
        ("restart_interval", "<u4"),
        ("reason", "<u4"),
        ("bands", "<u2"),
        ("flags", "<u2"),
        ("compression", "<u2"),
        ("format", "u1"),
        ("dtype", "u1"),
        ("orientation", "u1"),
        ("padding", "u1", (3,)),
    ]
)
_INTEGER_FIELDS = (
    "width", "height", "bands", "orientation", "coefficient_bytes", "restart_interval", "block_width", "block_height",
    "compression", "file_size", "mtime_ns",
)  # fmt: skip


def to_header(record: Any) -> Header:
    """Convert a record to a Header."""
    return Header(
        format=FORMATS[record["format"]],
        dtype=DTYPES[record["dtype"]],
        flags=ImageFlag(int(record["flags"])),
        **{name: int(record[name]) for name in _INTEGER_FIELDS},
    )


def write_header(record: Any, header: Header) -> None:
    """Write a Header into a record."""
    for name in _INTEGER_FIELDS:
        record[name] = getattr(header, name)
    record["format"], record["dtype"] = FORMATS.index(header.format), DTYPES.index(header.dtype)
    record["flags"] = int(header.flags)
