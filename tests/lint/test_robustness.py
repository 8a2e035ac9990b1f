"""Files that are no code, or far too much of it: no crash, no hang, bounded memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from oomph.errors import OomphError
from oomph.lint import fix_text, lint_paths, lint_text

pytestmark = pytest.mark.medium
CASES = Path(__file__).parent / "cases"
SOURCES = sorted(path for path in CASES.rglob("*") if path.suffix in {".py", ".md", ".sh", ".ipynb"})
PIECES = [
    "\0",
    "\x0c",
    "\ufeff",
    "\r",
    "```",
    "'''",
    '"""',
    "(",
    "]",
    "\\",
    "\t",
    "é",
    "😀",
    "<pre>",
    "EOF",
    "!",
    "%%",
    "{",
    "#",
]
MAX_EXTRA_MIB = 400


def mutated(text: str, generator: random.Random) -> str:
    for _ in range(generator.randint(1, 8)):
        position = generator.randint(0, len(text))
        change = generator.randint(0, 3)
        if change == 0:
            text = text[:position] + generator.choice(PIECES) + text[position:]
        elif change == 1:
            text = text[:position] + text[position + generator.randint(1, 40) :]
        elif change == 2:
            other = generator.randint(0, len(text))
            text = text[:position] + text[other : other + 60] + text[position:]
        else:
            text = text[:position]
    return text


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(CASES)) for path in SOURCES])
def test_mutated_files_are_checked_and_fixed(path: Path) -> None:
    generator = random.Random(path.name)  # noqa: S311  reproducible changes, no secret
    text = path.read_text(encoding="utf-8")
    for _ in range(25):
        changed = mutated(text, generator)
        try:
            result = lint_text(changed, path.name)
            fixed, _ = fix_text(changed, path.name)
        except OomphError:
            assert path.suffix == ".ipynb"
            continue
        lines = changed.count("\n") + changed.count("\r") + 1
        for diagnostic in result.diagnostics:
            span = diagnostic.problem.span
            assert 1 <= span.line <= span.end_line
            assert span.cell is not None or span.end_line <= lines
            assert span.column >= 0
        assert isinstance(fixed, str)


@pytest.mark.parametrize("name", ["a.py", "a.md", "a.sh", "a.ipynb"])
def test_random_bytes(tmp_path: Path, name: str) -> None:
    generator = random.Random(1)  # noqa: S311  reproducible bytes, no secret
    for number in range(20):
        (tmp_path / f"{number}{name}").write_bytes(generator.randbytes(generator.randint(0, 5000)))
    result = lint_paths([tmp_path])
    assert not result.diagnostics


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 10_000 + ")" * 10_000,
        "x = " + "[" * 10_000,
        "x = " + "+".join(["a"] * 20_000),
        "x = a" + ".b" * 5_000,
        "x = " + "not " * 5_000 + "a",
        "\n".join(" " * level + "if a:" for level in range(1_000)),
        "import os\nos.system(" + " + ".join(['"nvidia-smi "'] * 3_000) + ")",
        "os.system('" + "$(" * 10_000 + "')",
        "def f():\n" + "    for x in loader:\n        loss.backward()\n" * 2_000,
        "torch.cuda.amp.autocast()\n" * 20_000,
    ],
    ids=["brackets", "open brackets", "sum", "attributes", "not", "ifs", "strings", "shell", "loops", "findings"],
)
def test_deep_and_long_code(text: str) -> None:
    start = time.perf_counter()
    for name in ("a.py", "a.md", "a.sh"):
        lint_text(f"```python\n{text}\n```\n" if name == "a.md" else text, name)
    lint_text(json.dumps({"cells": [{"cell_type": "code", "source": text}]}), "a.ipynb")
    assert time.perf_counter() - start < 60


@pytest.mark.large
def test_twenty_thousand_fixes_in_one_file() -> None:
    text = "import torch\n" + "torch.cuda.amp.autocast()\n" * 20_000
    start = time.perf_counter()
    fixed, count = fix_text(text, "a.py")
    assert count == 20_000
    assert "torch.cuda.amp" not in fixed
    assert time.perf_counter() - start < 60


_MEASURE = """
import resource, sys
from pathlib import Path
from oomph.lint import lint_paths
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = lint_paths([Path(sys.argv[1])])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(result.files, len(result.skipped), (after - before) // 1024)
"""


def measured(path: Path) -> tuple[int, int, int]:
    """Return how many files were checked and skipped, and the memory in MiB that it took, in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(_MEASURE), str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    files, skipped, memory = map(int, process.stdout.split())
    return files, skipped, memory


@pytest.mark.parametrize("name", ["a.py", "a.ipynb", "a.md", "a.sh"])
def test_line_of_a_gigabyte(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(b"x = 1 ")
        file.truncate(1 << 30)
    files, skipped, memory = measured(path)
    assert (files, skipped) == (0, 1)
    assert memory < MAX_EXTRA_MIB


def test_line_of_four_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = [" + "1, " * 1_300_000 + "]\n")
    assert measured(path)[2] < 3_000


@pytest.mark.large
def test_hundred_thousand_lines_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("import torch\n" + "loss = f(x)\nloss.backward()\noptimizer.step()\n" * 33_333)
    files, skipped, memory = measured(path)
    assert (files, skipped) == (1, 0)
    assert memory < 2_000
