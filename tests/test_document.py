from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oomph import document
from oomph.errors import InvalidFile, MissingFile
from oomph.machine._fact import NO_LIMIT, Fact, Limit, Unknown


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Thing:
    name: str
    size: Fact[int]
    limit: Limit
    parts: tuple[Fact[float], ...]
    colour: Colour
    note: str | None


THING = Thing(
    "a",
    Fact(3, "here"),
    Fact(NO_LIMIT, "there"),
    (Fact(0.5, "x"), Fact(Unknown("hidden"), "y")),
    Colour.RED,
    None,
)


def written() -> dict[str, Any]:
    data = json.loads(json.dumps(document.write("thing", 1, THING)))
    assert isinstance(data, dict)
    return data


def test_a_value_comes_back_as_it_was() -> None:
    assert document.read("thing", 1, Thing, written()) == THING


def test_unknown_and_no_limit_are_values_of_their_own() -> None:
    data = written()
    assert data["limit"]["value"] == "no limit"
    assert data["parts"][1]["value"] == {"unknown": "hidden"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"oomph": "plan"}, "of the kind 'plan', not 'thing'"),
        ({"version": 2}, "version 2"),
        ({"name": 7}, "name should be a str"),
        ({"size": {"value": True, "source": "x"}}, "size.value should be int or Unknown"),
        ({"size": {"value": 1}}, "'source' is off"),
        ({"parts": {}}, "parts should be a list"),
        ({"parts": [{"value": "x", "source": "y"}]}, r"parts\[0\].value"),
        ({"colour": "blue"}, "one of red"),
        ({"extra": 1}, "'extra' is off"),
        ({"size": {"value": 10**400, "source": "x"}}, "size.value"),
        ({"parts": [{"value": float("inf"), "source": "y"}]}, r"parts\[0\].value"),
        ({"version": "9" * 500}, "version 9{40} and"),
        ({"oomph": "x" * 500}, "kind 'x{40}'"),
    ],
)
def test_a_damaged_document_is_refused_with_the_place(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidFile, match=words):
        document.read("thing", 1, Thing, {**written(), **change})


@pytest.mark.parametrize("data", [None, [], "text", {"a": 1}])
def test_what_is_no_document_is_refused(data: object) -> None:
    with pytest.raises(InvalidFile, match="no oomph document"):
        document.read("thing", 1, Thing, data)


def test_files_that_are_missing_or_no_json_are_refused(tmp_path: Path) -> None:
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
def test_files_are_read_as_powershell_writes_them(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes('{"name": "Büro"}'.encode(encoding))
    assert document.load(file) == {"name": "Büro"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" + "9" * 5000 + "]", "number that is none"),
        ("[NaN]", "number that is none"),
        ("[-Infinity]", "number that is none"),
    ],
)
def test_what_only_pythons_reader_would_take_or_choke_on_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(InvalidFile, match=words):
        document.load(file)


def test_what_is_written_is_ascii_and_has_no_nan() -> None:
    assert document.dumps({"ü": 1}) == '{\n  "\\u00fc": 1\n}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        document.dumps([float("nan")])


def test_what_has_no_place_in_a_document_is_a_bug() -> None:
    with pytest.raises(TypeError, match="set"):
        document.encode({1, 2})
