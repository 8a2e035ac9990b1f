"""Fixes of data loading, run before and after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oomph.lint import LintOptions, fix_text, lint_text

SCRIPTS = Path(__file__).parent / "scripts" / "data"


def _run(folder: Path, text: str) -> tuple[str, str]:
    """Run a script beside the modules that it imports, and return what it prints and warns."""
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    paths = {"PYTHONPATH": str(SCRIPTS), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=paths, check=True)
    return result.stdout, result.stderr


def _fix(name: str) -> tuple[str, str]:
    """Return a script before and after its fixes; a second fix must change nothing."""
    text = (SCRIPTS / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    options = LintOptions(select=(name,))
    fixed, count = fix_text(text, f"{name}.py", options)
    assert count > 0
    assert fix_text(fixed, f"{name}.py", options) == (fixed, 0)
    return text, fixed


@pytest.mark.large
def test_copies_that_do_not_block_train_the_same(tmp_path: Path) -> None:
    text, fixed = _fix("pin-without-non-blocking")
    assert fixed.count("non_blocking=True") == 3
    assert text.count("\n") == fixed.count("\n")
    assert _run(tmp_path, fixed)[0] == _run(tmp_path, text)[0]


@pytest.mark.medium
def test_initialized_sequence_has_its_workers(tmp_path: Path) -> None:
    text, fixed = _fix("keras-sequence-init")
    before, warning = _run(tmp_path, text)
    assert "super().__init__" in warning
    after, silence = _run(tmp_path, fixed)
    assert before.split() == ["1", "1", "2", "[6,", "22,", "38]"]
    assert after.split() == ["3", "1", "2", "[6,", "22,", "38]"]
    assert silence == ""


def test_docstring_stays_first() -> None:
    _, fixed = _fix("keras-sequence-init")
    assert '        """Keep the values."""\n        super().__init__(**kwargs)\n        self.values' in fixed
    assert "def __init__(self, count): super().__init__(); self.count = count" in fixed


def test_indentation_with_tabs_is_kept() -> None:
    text = "class A(keras.utils.PyDataset):\n\tdef __init__(self, n):\n\t\tself.n = n\n"
    fixed, _ = fix_text(text, "a.py")
    assert "\n\t\tsuper().__init__()\n\t\tself.n = n\n" in fixed


def test_base_class_between_is_left_to_the_author() -> None:
    text = (
        "class Base(keras.utils.PyDataset):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.n = n\n"
        "class Child(Base):\n    def __init__(self):\n        self.m = 1\n"
    )
    assert lint_text(text, "a.py").diagnostics
    assert fix_text(text, "a.py") == (text, 0)
