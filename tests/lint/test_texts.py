from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from oomph.lint import lint_text

TEXTS = Path(__file__).parent / "texts"
MAX_DISTANCE = 3  # lines between a label and a report

Place = tuple[str, int | None, int]  # rule, cell, line


@dataclass(frozen=True)
class Score:
    """Mistakes of a set, how many of them were found, and reports where no mistake is."""

    mistakes: int
    found: int
    false_alarms: list[tuple[str, Place]]


def score(name: str) -> Score:
    mistakes = found = 0
    false_alarms = []
    for line in (TEXTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        diagnostics = lint_text(case["text"], case["name"]).diagnostics
        reports = [(each.rule, each.problem.span.cell, each.problem.span.line) for each in diagnostics]
        labels = [(rule, cell, row) for rule, cell, row, kind in case["expected"] if kind == "mistake"]
        mistakes += len(labels)
        found += sum(any(is_near(label, report) for report in reports) for label in labels)
        rules = {rule for rule, *_ in case["expected"]}
        false_alarms += [(case["name"], report) for report in reports if report[0] not in rules]
    return Score(mistakes, found, false_alarms)


def is_near(label: Place, report: Place) -> bool:
    return label[:2] == report[:2] and abs(label[2] - report[2]) <= MAX_DISTANCE


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("development", 1.0),
        ("held_out", 1.0),
        ("blind_first", 0.97),
        ("blind_second", 0.9),
        ("blind_third", 0.93),
        ("blind_fourth", 0.93),
        ("blind_fifth", 0.96),
        ("blind_sixth", 0.98),
    ],
)
def test_mistakes_in_texts_are_found_without_false_alarms(name: str, share: float) -> None:
    result = score(name)
    assert result.mistakes > 100
    assert result.found >= share * result.mistakes
    assert result.false_alarms == []
