from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import oomph
from oomph.detect.training._resume_check import Circumstances

BEGUN = Circumstances(("cat", "dog"), images=10, ranks=2, order="abc")


def test_what_was_saved_and_read_again_is_the_same() -> None:
    BEGUN.check(json.loads(json.dumps(BEGUN.facts())))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"names": ("dog", "cat")}, r"2 \(dog, cat\) and not 2 \(cat, dog\); write them as they were"),
        ({"names": ("cat",)}, r"1 \(cat\) and not 2"),
        ({"ranks": 1}, "begun with 2 ranks, and there are 1; resume it with torchrun --nproc-per-node 2"),
        ({"order": "abd"}, r"not those that the run was begun with \(other files\)"),
        ({"order": "abd", "images": 9}, r"\(9 now, 10 then\)"),
    ],
)
def test_what_changed_is_named_with_what_to_do(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(oomph.UsageError, match=words):
        dataclasses.replace(BEGUN, **changes).check(BEGUN.facts())


def test_names_that_are_many_are_cut() -> None:
    now = dataclasses.replace(BEGUN, names=tuple(f"class {number}" for number in range(1000)))
    with pytest.raises(oomph.UsageError) as raised:
        now.check(BEGUN.facts())
    assert len(str(raised.value)) < 400
