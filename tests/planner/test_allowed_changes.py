from __future__ import annotations

import pytest

from oomph.errors import UsageError
from oomph.planner import AllowedChanges, read_allowed
from oomph.settings import Settings


def test_read_allowed() -> None:
    assert read_allowed("precision, size") == ("precision", "size")
    with pytest.raises(UsageError, match="'optimizer' can't be allowed; use precision or size"):
        read_allowed("optimizer")


def test_candidates_start_with_exact_changes() -> None:
    changes = AllowedChanges(
        checkpointing=True, precision="amp-bf16", image_sizes=(608,), allowed=("precision", "size")
    )
    candidates = [(c.checkpointing, c.precision) for c in changes.candidates(Settings(batch=8, size=640))]
    assert candidates == [("none", "fp32"), ("blocks", "fp32"), ("none", "amp-bf16"), ("blocks", "amp-bf16")]
    assert [c.size for c in changes.smaller_images(Settings(batch=8, size=640))] == [608]


def test_with_more_adds_missing_permissions() -> None:
    assert [c.allowed for c in AllowedChanges().with_more()] == [("precision",), ("size",), ("precision", "size")]
