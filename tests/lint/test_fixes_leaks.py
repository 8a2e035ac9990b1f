from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oomph.lint import LintOptions, fix_text, lint_text

SCRIPTS = Path(__file__).parent / "scripts"
# The first line that each script prints shows the mistake; the others must not change.
SYMPTOMS = {
    "loss-keeps-graph": ("22", "0"),
    "outputs-keep-graph": ("20", "0"),
    "exception-kept": ("True", "False"),
    "empty-cache-in-loop": ("True", "False"),
}

pytestmark = pytest.mark.medium


@pytest.mark.large
@pytest.mark.parametrize("rule", SYMPTOMS)
def test_fixed_script_trains_the_same_without_the_mistake(rule: str, tmp_path: Path) -> None:
    source = (SCRIPTS / f"{rule.replace('-', '_')}.py").read_text(encoding="utf-8")
    fixed, count = fix_text(source, "script.py", LintOptions(select=(rule,)))
    assert count >= 1
    assert not lint_text(fixed, "script.py", LintOptions(select=(rule,))).diagnostics

    before, after = _run(source, tmp_path / "before.py"), _run(fixed, tmp_path / "after.py")

    assert (before[0], after[0]) == SYMPTOMS[rule]
    assert before[1:] == after[1:]


@pytest.mark.parametrize("rule", SYMPTOMS)
def test_second_fix_changes_nothing(rule: str) -> None:
    source = (SCRIPTS / f"{rule.replace('-', '_')}.py").read_text(encoding="utf-8")
    fixed, _ = fix_text(source, "script.py")
    assert fix_text(fixed, "script.py") == (fixed, 0)


def test_exception_that_is_raised_later_keeps_its_traceback() -> None:
    source = (
        "def run(model, batches):\n"
        "    last = None\n"
        "    for batch in batches:\n"
        "        try:\n"
        "            model(batch)\n"
        "        except torch.cuda.OutOfMemoryError as error:\n"
        "            last = error\n"
        "    if last is not None:\n"
        "        raise last\n"
    )
    only = LintOptions(select=("exception-kept",))
    assert len(lint_text(source, "run.py", only).diagnostics) == 1
    assert fix_text(source, "run.py", only) == (source, 0)


def test_output_that_may_be_a_tuple_is_not_detached() -> None:
    source = (
        "outs = []\n"
        "for x, y in loader:\n"
        "    optimizer.zero_grad()\n"
        "    out = model(x)\n"
        "    loss = compute_loss(out, y)\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    outs.append(out)\n"
    )
    only = LintOptions(select=("outputs-keep-graph",))
    assert len(lint_text(source, "run.py", only).diagnostics) == 1
    assert fix_text(source, "run.py", only) == (source, 0)


def _run(source: str, path: Path) -> list[str]:
    path.write_text(source, encoding="utf-8")
    result = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()
