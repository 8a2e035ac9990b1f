from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.errors import InvalidSize, UsageError
from oomph.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    count_of,
    format_number,
    format_rate,
    format_size,
    format_time,
    parse_size,
    parse_time,
)


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
def test_parse_size(text: str | int, size: int) -> None:
    assert parse_size(text) == size


def test_parse_percentage() -> None:
    assert parse_size("80%", of=1000) == 800
    assert parse_size("12.5 %", of=GIB) == GIB // 8


@pytest.mark.parametrize(
    "text",
    ["12 bananas", "", "GiB", "-3GiB", "1e9", "nan", "inf", "1,5GB", "3 GiB 2", "٣GB", "80%", "1.2.3GB"],
)
def test_invalid_sizes_are_quoted_with_a_fix(text: str) -> None:
    with pytest.raises(InvalidSize) as caught:
        parse_size(text)
    assert repr(text) in caught.value.why
    assert "GiB" in caught.value.fix


def test_out_of_range_sizes_are_rejected() -> None:
    with pytest.raises(InvalidSize, match="more than 100%"):
        parse_size("120%", of=100)
    with pytest.raises(InvalidSize, match="-1 is negative"):
        parse_size(-1)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "GiB", "99999999999TB", "9" * 10_000 + " bananas"])
def test_huge_sizes_are_rejected_with_a_short_message(text: str) -> None:
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
def test_format_size_has_three_digits(size: float, text: str) -> None:
    assert format_size(size) == text


def test_format_rate() -> None:
    assert format_rate(12 * MIB) == "12 MiB/s"


@given(st.integers(min_value=0, max_value=2**50))
def test_formatted_size_parses_back_within_a_percent(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.006)


@given(st.integers(min_value=0, max_value=2**50), st.integers(min_value=0, max_value=2**50))
def test_formatting_keeps_the_order_of_sizes(a: int, b: int) -> None:
    small, large = sorted((a, b))
    assert parse_size(format_size(small)) <= parse_size(format_size(large))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (3599, "1 h 00 min"), (9000, "2 h 30 min")]
)
def test_format_time(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


def test_count_of_uses_the_plural() -> None:
    assert [count_of(number, "image") for number in (0, 1, 2)] == ["0 images", "1 image", "2 images"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("45s", 45), ("10m", 600), ("10 min", 600), ("1.5h", 5400), ("2d", 172800)]
)
def test_parse_time(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-1", "soon", "10 parsecs", "1e3", "nan"])
def test_invalid_times_are_quoted_with_a_fix(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration; write a number and a unit, such as 90s, 10m or 2h"):
        parse_time(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.000"),
        (0.6123, "0.612"),
        (-1.5, "-1.500"),
        (37.46, "37.5"),
        (1234.5, "1234"),
        (2.1e-5, "2.1e-05"),
        (3e7, "3e+07"),
    ],
)
def test_format_number(value: float, text: str) -> None:
    assert format_number(value) == text
