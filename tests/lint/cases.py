"""Cases of rules: files in `cases/<family>/`, in which a comment `# expect: rule` marks every line with a mistake.

Every other line must give no diagnostic, so right code beside the wrong one is a test too. In Markdown and shell
scripts the mark is the same; in notebooks it is in the cell.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

CASES = Path(__file__).parent / "cases"
FILES = sorted(path for path in CASES.rglob("*") if path.suffix in {".py", ".md", ".sh", ".ipynb"})
_EXPECTED = re.compile(r"(?:#|<!--) expect: ([\w-]+(?:, [\w-]+)*)")

Place = tuple[int | None, int, str]  # cell, line, rule


def expected_places(path: Path) -> list[Place]:
    """Return the marked places of a case."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return _places(None, text)
    cells = json.loads(text)["cells"]
    return [place for index, cell in enumerate(cells) for place in _places(index, "".join(cell["source"]))]


def _places(cell: int | None, text: str) -> list[Place]:
    return [
        (cell, number, rule)
        for number, line in enumerate(text.splitlines(), 1)
        for match in _EXPECTED.finditer(line)
        for rule in match[1].split(", ")
    ]
