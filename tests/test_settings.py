from __future__ import annotations

from typing import Any

import pytest

from oomph.errors import UsageError
from oomph.settings import Settings, parse_allocator, parse_side


def test_a_batch_is_split_into_pieces_and_the_rest() -> None:
    assert Settings(batch=8).micro_batch_sizes == (8,)
    assert Settings(batch=10, micro_batch=4).micro_batch_sizes == (4, 4, 2)
    assert sum(Settings(batch=17, micro_batch=5).micro_batch_sizes) == 17


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"batch": 2.5},
        {"batch": True},
        {"batch": 4, "micro_batch": 8},
        {"batch": 4, "micro_batch": 0},
        {"batch": 4, "precision": "fp8"},
        {"batch": 4, "memory_format": "rows"},
        {"batch": 4, "allocator": "jemalloc"},
    ],
)
def test_wrong_settings_are_refused_with_what_is_allowed(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"must be|at most"):
        Settings(**wrong)


def test_sides_are_read() -> None:
    assert parse_side("640") == 640
    assert parse_side("640x480") == (640, 480)
    for text in ("", "a", "1x2x3", "-5", "6.5"):
        with pytest.raises(UsageError, match="height x width"):
            parse_side(text)


def test_knobs_of_the_allocator_are_read() -> None:
    knobs = parse_allocator("expandable_segments:True,max_split_size_mb:128")
    assert knobs.expandable
    assert knobs.max_split == 128 * 1024**2
    assert parse_allocator("default") == parse_allocator("expandable_segments:False")


@pytest.mark.parametrize(
    "text", ["garbage_collection_threshold:0.8", "backend:cudaMallocAsync", "max_split_size_mb:x", "x"]
)
def test_other_knobs_are_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=text.split(":", maxsplit=1)[0]):
        Settings(batch=1, allocator=text)
