from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest

from oomph.cli import run
from tests.report.run.runs import gpu_lines, write_record


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return write_record(tmp_path / "run.jsonl", gpu_lines(5))


def test_a_page_is_written_beside_the_record(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(record)]) == 0
    page = record.with_suffix(".html")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    output = capsys.readouterr().out
    assert "run: Finished in 4 s. No problem was found." in output
    assert f"The report is in {page}" in output


def test_json_writes_no_page_unless_requested(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(record), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["oomph"], document["page"], document["runs"][0]["state"]) == ("report", None, "finished")
    assert not record.with_suffix(".html").exists()
    page = record.with_name("other.html")
    assert run(["report", str(record), "--json", "-o", str(page)]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == str(page)
    assert page.exists()


def test_open_shows_the_page_in_the_browser(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert run(["report", str(record), "--open"]) == 0
    assert opened == [record.with_suffix(".html").as_uri()]


def test_several_runs_are_compared_in_one_page(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(record.parent)
    other = write_record(record.with_name("other.jsonl"), gpu_lines(3))
    assert run(["report", record.name, other.name]) == 0
    assert "The report is in report.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is no file 'nothing'; check the path."),
        (["notes.txt"], "'notes.txt' is not a Record"),
        (["run.jsonl", "./run.jsonl"], "the same run is named twice"),
        (["run.jsonl", "-o", "."], "'.' is a folder; name a file, such as -o report.html."),
        (["run.jsonl", "-o", "run.jsonl"], "is the Record itself"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    message: str,
    record: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(record.parent)
    Path("notes.txt").write_text("hello")
    before = record.read_bytes()
    assert run(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert record.read_bytes() == before
