"""Each test imports matplotlib in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
DRAW = "from oomph.charts import figure_png, new_figure; assert figure_png(new_figure(99, 99))[:4] == b'\\x89PNG'\n"


def run_python(code: str, **environment: str) -> str:
    """Return what a process prints, with warnings as errors."""
    variables = {**os.environ, "PYTHONPATH": str(SOURCE), **environment}
    command = [sys.executable, "-W", "error", "-c", code]
    process = subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


@pytest.mark.medium
def test_drawing_is_silent_in_a_hostile_environment(tmp_path: Path) -> None:
    """MPLBACKEND is nonsense, and neither the home nor the configuration folder can be created."""
    (tmp_path / "file").touch()
    hostile = {
        "MPLBACKEND": "nonsense",
        "MPLCONFIGDIR": str(tmp_path / "file" / "config"),
        "HOME": str(tmp_path / "file" / "home"),
        "DISPLAY": ":77",
    }
    code = "import os, logging\n" + DRAW + "assert os.environ['MPLBACKEND'] == 'nonsense'\n"
    code += "import sys; assert 'matplotlib.pyplot' not in sys.modules\n"
    code += "assert logging.getLogger('matplotlib').level == logging.NOTSET"
    assert run_python(code, **hostile) == ""


@pytest.mark.medium
def test_the_backend_of_the_environment_stays_that_of_other_code() -> None:
    code = DRAW + "import matplotlib; print(matplotlib.rcParams['backend'])"
    assert run_python(code, MPLBACKEND="svg") == "svg\n"


def test_nothing_is_imported_before_something_is_drawn() -> None:
    code = "import sys, oomph.charts\nassert not {'matplotlib', 'numpy'} & set(sys.modules)"
    assert run_python(code) == ""
