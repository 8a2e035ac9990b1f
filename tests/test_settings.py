from __future__ import annotations

from typing import Any

import pytest

from oomph.errors import UsageError
from oomph.settings import AllocatorConfig, Settings, parse_allocator, parse_sample_size
from oomph.units import MIB


def test_micro_batch_sizes_cover_the_batch() -> None:
    assert Settings(batch=8).micro_batch_sizes == (8,)
    assert Settings(batch=10, micro_batch=4).micro_batch_sizes == (4, 4, 2)
    assert sum(Settings(batch=17, micro_batch=5).micro_batch_sizes) == 17


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"batch": 0}, "batch is 0; set batch to a whole number of at least 1"),
        ({"batch": 2.5}, "batch is 2.5"),
        ({"batch": True}, "batch is True"),
        ({"batch": 4, "micro_batch": 8}, "micro_batch 8 is larger than batch 4"),
        ({"batch": 4, "micro_batch": 0}, "micro_batch is 0"),
        ({"batch": 4, "loss_chunks": 0}, "loss_chunks is 0; set loss_chunks to a whole number of at least 1"),
        ({"batch": 4, "precision": "fp8"}, "precision is 'fp8'; set precision to one of fp32"),
        ({"batch": 4, "memory_format": "rows"}, "set memory_format to one of contiguous"),
        ({"batch": 4, "allocator": "jemalloc"}, "set allocator to one of default, expandable"),
        ({"batch": 4, "ranks": 8}, 'there are 8 ranks with parallel \'none\'; set parallel to "ddp" or "fsdp2"'),
        ({"batch": 4, "parallel": "ddp"}, "there are 1 ranks with parallel 'ddp'"),
        ({"batch": 4, "ranks": 0}, "ranks is 0"),
        ({"batch": 4, "ranks": 2, "parallel": "zero"}, "set parallel to one of none, ddp, fsdp2"),
        ({"batch": 4, "ranks": 2, "parallel": "fsdp2", "memory_format": "channels_last"}, "only contiguous weights"),
        ({"batch": 4, "ranks": 2, "parallel": "fsdp2", "optimizer": "8bit"}, "8-bit states of sharded weights"),
    ],
)
def test_invalid_settings_are_rejected_with_the_allowed_values(invalid: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings(**invalid)


@pytest.mark.parametrize(
    "invalid",
    [
        {"batch": [["nested"] * 100] * 100},
        {"batch": 1, "precision": "x" * 10_000},
        {"batch": 1, "allocator": "x" * 10_000},
        {"batch": 1, "allocator": f"{'x' * 10_000}:1"},
        {"batch": 1, "allocator": f"max_split_size_mb:{'x' * 10_000}"},
    ],
    ids=lambda invalid: next(reversed(invalid)),
)
def test_messages_do_not_repeat_long_input(invalid: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Settings(**invalid)
    assert len(str(caught.value)) < 250


def test_parse_sample_size() -> None:
    assert parse_sample_size("640") == 640
    assert parse_sample_size("640x480") == (640, 480)
    for text in ("", "a", "1x2x3", "-5", "6.5", "²", "9" * 5000):
        with pytest.raises(UsageError, match="HEIGHTxWIDTH"):
            parse_sample_size(text)


def test_parse_allocator_options() -> None:
    config = parse_allocator("expandable_segments:True, max_split_size_mb:128")
    assert config == AllocatorConfig(expandable=True, max_split=128 * MIB)
    assert parse_allocator("default") == parse_allocator("expandable_segments:False") == AllocatorConfig()


@pytest.mark.parametrize(
    "text", ["garbage_collection_threshold:0.8", "backend:cudaMallocAsync", "max_split_size_mb:x", "x"]
)
def test_other_allocator_options_are_rejected_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=text.split(":", maxsplit=1)[0]):
        Settings(batch=1, allocator=text)
