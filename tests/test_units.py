from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.errors import InvalidSize
from oomph.units import GIB, KIB, MIB, TIB, count_of, format_rate, format_size, format_time, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GB", 24 * 10**9),
        ("11.4 GiB", int(11.4 * GIB)),
        ("16g", 16 * GIB),
        ("512M", 512 * MIB),
        ("1.5KiB", 1536),
        ("0", 0),
        ("1048576", MIB),
        (".5gib", GIB // 2),
        ("100 bytes", 100),
        (" 2TB ", 2 * 10**12),
        (4096, 4096),
    ],
)
def test_sizes_are_read_as_they_are_written(text: str | int, size: int) -> None:
    assert parse_size(text) == size


def test_a_share_is_taken_of_what_is_said() -> None:
    assert parse_size("80%", of=1000) == 800
    assert parse_size("12.5 %", of=GIB) == GIB // 8


@pytest.mark.parametrize(
    "text",
    ["12 bananas", "", "GiB", "-3GiB", "1e9", "nan", "inf", "1,5GB", "3 GiB 2", "٣GB", "80%", "1.2.3GB"],
)
def test_what_is_no_size_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(InvalidSize) as caught:
        parse_size(text)
    assert repr(text) in caught.value.why
    assert "GiB" in caught.value.fix


def test_more_than_all_and_less_than_nothing_are_refused() -> None:
    with pytest.raises(InvalidSize, match="more than there is"):
        parse_size("120%", of=100)
    with pytest.raises(InvalidSize, match="not a size"):
        parse_size(-1)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "GiB", "99999999999TB", "9" * 10_000 + " bananas"])
def test_sizes_beyond_any_machine_are_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(InvalidSize) as caught:
        parse_size(text)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (512, "512 B"),
        (64 * MIB, "64 MiB"),
        (int(11.4 * GIB), "11.4 GiB"),
        (141 * GIB, "141 GiB"),
        (GIB - 1, "1 GiB"),
        (1023 * MIB, "1023 MiB"),
        (2 * TIB, "2 TiB"),
        (1.25 * GIB, "1.25 GiB"),
        (-3 * KIB, "-3 KiB"),
    ],
)
def test_sizes_are_written_with_three_digits(size: float, text: str) -> None:
    assert format_size(size) == text


def test_rates_are_sizes_per_second() -> None:
    assert format_rate(12 * MIB) == "12 MiB/s"


@given(st.integers(min_value=0, max_value=2**50))
def test_reading_what_was_written_loses_less_than_a_percent(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.006)


@given(st.integers(min_value=0, max_value=2**50), st.integers(min_value=0, max_value=2**50))
def test_a_larger_size_never_reads_as_a_smaller_one(a: int, b: int) -> None:
    small, large = sorted((a, b))
    assert parse_size(format_size(small)) <= parse_size(format_size(large))


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (3599, "1 h 00 min"), (9000, "2 h 30 min")]
)
def test_a_time_is_written_for_people(seconds: float, words: str) -> None:
    assert format_time(seconds) == words


def test_one_of_a_thing_is_not_several() -> None:
    assert [count_of(number, "image") for number in (0, 1, 2)] == ["0 images", "1 image", "2 images"]
