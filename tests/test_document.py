from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oomph import document
from oomph.errors import InvalidFile, MissingFile
from oomph.machine._fact import NO_LIMIT, Fact, Limit, Unknown


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Thing:
    name: str
    size: Fact[int]
    limit: Limit
    parts: tuple[Fact[float], ...]
    color: Color
    counts: Mapping[str, float]
    note: str | None


THING = Thing(
    "a",
    Fact(3, "here"),
    Fact(NO_LIMIT, "there"),
    (Fact(0.5, "x"), Fact(Unknown("hidden"), "y")),
    Color.RED,
    {"a": 1, "b": 0.5},
    None,
)


def written() -> dict[str, Any]:
    data = json.loads(json.dumps(document.write("thing", 1, THING)))
    assert isinstance(data, dict)
    return data


def test_round_trip() -> None:
    assert document.read("thing", 1, Thing, written()) == THING


def test_unknown_and_no_limit_have_their_own_encoding() -> None:
    data = written()
    assert data["limit"]["value"] == "no limit"
    assert data["parts"][1]["value"] == {"unknown": "hidden"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"oomph": "plan"}, "of kind 'plan', not 'thing'"),
        ({"version": 2}, "version 2"),
        ({"name": 7}, "name should be a str"),
        ({"size": {"value": True, "source": "x"}}, "size.value should be int or Unknown"),
        ({"size": {"value": 1}}, "'source' is missing"),
        ({"parts": {}}, "parts should be a list"),
        ({"parts": [{"value": "x", "source": "y"}]}, r"parts\[0\].value"),
        ({"color": "blue"}, "one of red"),
        ({"counts": []}, "counts should be an object"),
        ({"counts": {"a": "x"}}, "counts.a should be a float"),
        ({"extra": 1}, "'extra' is unknown"),
        ({"size": {"value": 10**400, "source": "x"}}, "size.value"),
        ({"parts": [{"value": float("inf"), "source": "y"}]}, r"parts\[0\].value"),
        ({"version": "9" * 500}, "version 9{39}…, but"),
        ({"oomph": "x" * 500}, "kind 'x{59}…', not"),
        ({"x" * 500: 1}, "'x{59}…' is unknown"),
    ],
)
def test_damaged_document_is_rejected_with_the_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        document.read("thing", 1, Thing, {**written(), **change})


@pytest.mark.parametrize("data", [None, [], "text", {"a": 1}])
def test_other_data_is_rejected(data: object) -> None:
    with pytest.raises(InvalidFile, match="not a thing document of oomph"):
        document.read("thing", 1, Thing, data)


def test_missing_and_unreadable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"nothing\.json"):
        document.load(tmp_path / "nothing.json")
    (tmp_path / "text").write_text("hello\n{")
    with pytest.raises(InvalidFile, match="not JSON"):
        document.load(tmp_path / "text")
    with pytest.raises(InvalidFile, match="can't be read"):
        document.load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidFile, match="can't be read"):
        document.load(tmp_path / "binary")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_load_detects_the_encodings_of_powershell(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes('{"name": "Büro"}'.encode(encoding))
    assert document.load(file) == {"name": "Büro"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" + "9" * 5000 + "]", "contains NaN, Infinity or a huge number"),
        ("[NaN]", "contains NaN, Infinity or a huge number"),
        ("[-Infinity]", "contains NaN, Infinity or a huge number"),
    ],
)
def test_json_that_only_python_accepts_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(InvalidFile, match=message):
        document.load(file)


def test_dumps_is_ascii_without_nan() -> None:
    assert document.dumps({"ü": 1}) == '{\n  "\\u00fc": 1\n}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        document.dumps([float("nan")])


def test_encode_rejects_unsupported_types() -> None:
    with pytest.raises(TypeError, match="set"):
        document.encode({1, 2})
