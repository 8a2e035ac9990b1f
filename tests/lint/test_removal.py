"""Statements that a fix removes from lines with others."""

from __future__ import annotations

import ast

import pytest

from oomph.lint import LintOptions, fix_text

ONLY = LintOptions(select=("empty-cache-in-loop",))
LOOP = "import gc, torch\nfor x, y in loader:\n    opt.zero_grad()\n    crit(model(x), y).backward()\n"


@pytest.mark.parametrize(
    ("line", "fixed"),
    [
        ("gc.collect(); torch.cuda.empty_cache()", ""),
        ("gc.collect(); torch.cuda.empty_cache();", ""),
        ("opt.step(); torch.cuda.empty_cache()", "opt.step()"),
        ("opt.step(); torch.cuda.empty_cache();", "opt.step();"),
        ("opt.step(); gc.collect(); torch.cuda.empty_cache()", "opt.step()"),
        ("opt.step(); gc.collect(); torch.cuda.empty_cache(); n += 1", "opt.step(); n += 1"),
        ("torch.cuda.empty_cache(); print(x)", "print(x)"),
        ("torch.cuda.empty_cache(); n += 1; gc.collect()", "n += 1"),
        ("torch.cuda.empty_cache();  # now", "  # now"),
        ("if torch.cuda.is_available(): torch.cuda.empty_cache()", "if torch.cuda.is_available(): pass"),
        ("if torch.cuda.is_available(): torch.cuda.empty_cache(); n += 1", "if torch.cuda.is_available(): n += 1"),
        ("if torch.cuda.is_available():\n        torch.cuda.empty_cache()\n        torch.cuda.empty_cache()",
         "if torch.cuda.is_available():\n        pass"),
    ],
)  # fmt: skip
def test_line_keeps_its_other_statements(line: str, fixed: str) -> None:
    result, count = fix_text(f"{LOOP}    {line}\n    m = 1\n", "a.py", ONLY)
    expected = f"    {fixed}\n" if fixed else ""
    assert count
    assert result == f"{LOOP}{expected}    m = 1\n"
    ast.parse(result)
