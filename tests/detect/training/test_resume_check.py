from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import oomph
from oomph.detect.training._resume_check import ResumeCheck

SAVED = ResumeCheck(("cat", "dog"), images=10, world_size=2, data_order="abc")


def test_an_unchanged_run_passes() -> None:
    SAVED.verify(json.loads(json.dumps(SAVED.state())))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("dog", "cat")}, r"2 \(dog, cat\), before 2 \(cat, dog\); restore them"),
        ({"names": ("cat",)}, r"1 \(cat\), before 2"),
        ({"world_size": 1}, "started with 2 ranks and is resumed with 1; resume it with torchrun --nproc-per-node 2"),
        ({"data_order": "abd"}, r"the training images have changed .* \(other files\)"),
        ({"data_order": "abd", "images": 9}, r"\(9 now, 10 before\)"),
    ],
)
def test_changes_are_rejected_with_a_fix(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(oomph.UsageError, match=message):
        dataclasses.replace(SAVED, **changes).verify(SAVED.state())


def test_many_names_are_truncated() -> None:
    check = dataclasses.replace(SAVED, names=tuple(f"class {number}" for number in range(1000)))
    with pytest.raises(oomph.UsageError) as caught:
        check.verify(SAVED.state())
    assert len(str(caught.value)) < 400
