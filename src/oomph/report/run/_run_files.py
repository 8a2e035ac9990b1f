"""The files of a run folder beside its Records: results.csv, config.json, data_issues.json, pictures.

A file that is missing or damaged is left out: a report of what is there is better than none.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import document
from ...errors import OomphError
from ._series import finite

_MAX_ISSUES = 200
_RECORDS = "record*.jsonl"
# Newer names first.
_TRAINING_PICTURES = ("train_batch0", "train_batch")
_VALIDATION_PICTURES = ("val_predictions",)
_PICTURE_SUFFIXES = (".jpg", ".png")


@dataclass(frozen=True)
class IssueRow:
    """One kind of problem in the data of a run: the split, how many items of which kind, the problem, examples."""

    split: str
    count: str
    problem: str
    skipped: bool
    examples: tuple[str, ...]


@dataclass(frozen=True)
class PictureFile:
    """A picture of a run, and what it shows."""

    path: Path
    description: str


def record_files(folder: Path) -> dict[int, Path]:
    """Return the Records of a run folder by rank: record.jsonl, record-1.jsonl and so on."""
    files: dict[int, Path] = {}
    for path in folder.glob(_RECORDS):
        suffix = path.stem.removeprefix("record").removeprefix("-")
        if path.is_file() and (suffix.isdecimal() or not suffix):
            files[int(suffix or 0)] = path
    return dict(sorted(files.items()))


def read_epochs(folder: Path) -> tuple[Mapping[str, float], ...]:
    """Return the rows of results.csv, without the cells that are not numbers."""
    try:
        with (folder / "results.csv").open(encoding="utf-8", errors="replace", newline="") as file:
            lines = list(csv.DictReader(file))
    except (OSError, csv.Error):
        return ()
    rows = [
        {name.strip(): number for name, cell in line.items() if name and (number := finite(cell)) is not None}
        for line in lines
    ]
    return tuple(row for row in rows if "epoch" in row)


def read_config(folder: Path) -> Mapping[str, Any]:
    """Return the resolved settings of a run; empty if there are none."""
    content = _read_json(folder / "config.json")
    resolved = content.get("resolved") if isinstance(content, dict) else None
    return resolved if isinstance(resolved, dict) else {}


def read_issues(folder: Path) -> tuple[IssueRow, ...] | None:
    """Return the problems of the data; None if the run has no list of them."""
    content = _read_json(folder / "data_issues.json")
    if not isinstance(content, dict):
        return None
    rows = [_issue_row(split, item) for split, items in content.items() for item in _dicts(items)]
    return tuple(rows[:_MAX_ISSUES])


def _issue_row(split: str, item: Mapping[str, Any]) -> IssueRow:
    examples = item.get("examples")
    return IssueRow(
        split=split,
        count=f"{item.get('count', '?')} {item.get('subject', 'item')}",
        problem=str(item.get("problem", "")),
        skipped=item.get("broken") is True,
        examples=tuple(map(str, examples)) if isinstance(examples, list) else (),
    )


def _dicts(items: object) -> Sequence[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def find_pictures(folder: Path) -> tuple[PictureFile, ...]:
    """Return the pictures of a run that exist."""
    wanted = (
        (_VALIDATION_PICTURES, "Validation images: labels on the left, detections of the best epoch on the right"),
        (_TRAINING_PICTURES, "The first training batch with its labels, after augmentation"),
    )
    pictures = []
    for stems, description in wanted:
        files = (folder / f"{stem}{suffix}" for stem in stems for suffix in _PICTURE_SUFFIXES)
        path = next((file for file in files if file.is_file()), None)
        if path is not None:
            pictures.append(PictureFile(path, description))
    return tuple(pictures)


def _read_json(path: Path) -> object:
    try:
        return document.load(path)
    except OomphError:
        return None
