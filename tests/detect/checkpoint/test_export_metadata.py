from __future__ import annotations

from pathlib import Path

import pytest

from oomph.detect import ANCHORS, STRIDES, ExportMetadata
from oomph.errors import UsageError

METADATA = ExportMetadata(("cat", "dög, 2"), ANCHORS, STRIDES, 640, "int8", 1000)
FILE = Path("x.onnx")


def test_metadata_survives_the_strings_of_an_onnx_file() -> None:
    entries = METADATA.encode()
    assert all(isinstance(value, str) for value in entries.values())
    assert ExportMetadata.decode(entries, FILE) == METADATA


def test_a_file_of_another_program_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"x\.onnx is not a detector that oomph exported; write one by `oomph shrink"):
        ExportMetadata.decode({"names": "['cat']"}, FILE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("names", "[]"),
        ("names", "{"),
        ("anchors", "[[1, 2]]"),
        ("anchors", "[[[1, 2]]]"),
        ("anchors", "[[[1, NaN], [1, 2], [1, 2]]]"),
        ("strides", "[8, 16]"),
        ("strides", "[]"),
        ("imgsz", "large"),
    ],
)
def test_damaged_metadata_is_rejected(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=r"the metadata of x\.onnx is damaged; export the detector again"):
        ExportMetadata.decode({**METADATA.encode(), key: value}, FILE)


def test_a_missing_entry_is_damage() -> None:
    entries = METADATA.encode()
    del entries["precision"]
    with pytest.raises(UsageError, match="damaged"):
        ExportMetadata.decode(entries, FILE)
