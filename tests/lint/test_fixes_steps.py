from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomph.lint import LintOptions, fix_text, lint_text

SCRIPTS = Path(__file__).parent / "scripts"
pytestmark = pytest.mark.medium


@pytest.mark.large
def test_moved_zero_grad_lets_gradients_add_up(tmp_path: Path) -> None:
    before, after = _losses("grad-zeroed-while-accumulating", tmp_path)
    assert after < before


@pytest.mark.large
def test_zeroed_gradients_train(tmp_path: Path) -> None:
    before, after = _losses("grad-never-zeroed", tmp_path)
    assert after < 0.8
    assert not before < 2 * after


@pytest.mark.large
def test_divided_loss_trains_at_the_stated_rate(tmp_path: Path) -> None:
    before, after = _losses("loss-not-divided", tmp_path)
    assert after < 0.8
    assert not before < after


@pytest.mark.large
def test_unscaled_gradients_are_clipped_less(tmp_path: Path) -> None:
    before, after = _losses("clip-without-unscale", tmp_path)
    assert before > 1.0  # hardly moved from its start
    assert after < 0.8


@pytest.mark.large
def test_updated_scaler_runs_on(tmp_path: Path) -> None:
    script, fixed = _fix("scaler-not-updated")
    wrong = _run(script, tmp_path)
    assert wrong.returncode != 0
    assert "since the last update()" in wrong.stderr
    right = _run(fixed, tmp_path)
    assert right.returncode == 0, right.stderr
    assert float(right.stdout) < 0.8


@pytest.mark.large
def test_new_amp_gives_the_same_loss_without_warnings(tmp_path: Path) -> None:
    script, fixed = _fix("deprecated-amp")
    wrong, right = _run(script, tmp_path), _run(fixed, tmp_path)
    assert right.returncode == 0, right.stderr
    assert "FutureWarning" in wrong.stderr
    assert "FutureWarning" not in right.stderr
    assert wrong.stdout == right.stdout


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_inserted_lines_keep_the_file_s_form(ending: str) -> None:
    lines = [
        "> ```python",
        "> for x, y in loader:",
        ">     optimizer.zero_grad()",
        ">     scaler.scale(crit(net(x), y)).backward()",
        ">     clip_grad_norm_(net.parameters(), 1.0)  # keep",
        ">     scaler.step(optimizer)  # once",
        "> ```",
        "",
    ]
    fixed, count = fix_text(ending.join(lines), "answer.md")
    expected = [*lines]
    expected.insert(6, ">     scaler.update()")
    expected.insert(4, ">     scaler.unscale_(optimizer)")
    assert count == 2
    assert fixed == ending.join(expected)


def _losses(rule: str, tmp_path: Path) -> tuple[float, float]:
    """Return the final loss of a script before and after its fix."""
    results = []
    for text in _fix(rule):
        result = _run(text, tmp_path)
        assert result.returncode == 0, result.stderr
        results.append(float(result.stdout))
    assert math.isfinite(results[1])
    return results[0], results[1]


def _fix(rule: str) -> tuple[str, str]:
    """Return a script and its fixed form, which no rule of its kind reports and a second fix leaves alone."""
    name = f"{rule.replace('-', '_')}.py"
    script = (SCRIPTS / name).read_text(encoding="utf-8")
    only = LintOptions(select=(rule,))
    fixed, count = fix_text(script, name, only)
    assert count >= 1
    assert not lint_text(fixed, name, only).diagnostics
    assert fix_text(fixed, name, only) == (fixed, 0)
    return script, fixed


def _run(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-W", "always", str(path)], capture_output=True, text=True, env=environment, check=False
    )
