"""Messages lose no spaces where strings are joined implicitly."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import oomph

ROOT = Path(oomph.__file__).parent


def faults(source: str) -> Iterator[tuple[int, str]]:
    """Where two adjacent literals meet with no space on either side, in what looks like prose: not in raw literals."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.Constant, ast.JoinedStr)) or node.lineno == node.end_lineno:
            continue
        text = ast.get_source_segment(source, node) or ""
        pieces = [line.strip() for line in text.splitlines()]
        for left, right in itertools.pairwise(pieces):
            if not (left.endswith(('"', "'")) and right.removeprefix("f").startswith(('"', "'"))):
                continue
            before, after = left[:-1], right.removeprefix("f")[1:]
            if before and after and not before.endswith((" ", "\\n")) and not after.startswith((" ", "\\n")):
                yield node.lineno, f"{left} {right}"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_space_is_lost_at_a_join(path: Path) -> None:
    assert not list(faults(path.read_text()))


def test_this_test_can_fail() -> None:
    lost = 'x = (\n    "the quick brown"\n    "fox"\n)\n'
    kept = 'x = (\n    "the quick brown "\n    f"{fox}"\n)\n'
    pattern = 'x = (\n    r"the|quick|brown"\n    r"|fox"\n)\n'
    formatted = 'x = (\n    f"the {quick} brown"\n    f"{fox} jumps"\n)\n'
    assert {line for line, _ in faults(lost)} == {2}
    assert {line for line, _ in faults(formatted)} == {2}
    assert not list(faults(kept))
    assert not list(faults(pattern))
