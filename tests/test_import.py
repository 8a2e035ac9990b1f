from __future__ import annotations

import subprocess
import sys

import pytest

_TIMED = """
import sys, time
began = time.perf_counter()
import oomph
print(time.perf_counter() - began, "torch" in sys.modules, "numpy" in sys.modules)
"""


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_oomph_takes_at_most_50_ms_and_no_torch() -> None:
    runs = [fresh(_TIMED).split() for _ in range(5)]
    assert min(float(seconds) for seconds, _, _ in runs) < 0.050
    assert {(torch, numpy) for _, torch, numpy in runs} == {("False", "False")}


def test_importing_oomph_prints_nothing_and_changes_no_environment() -> None:
    assert fresh("import os; before = dict(os.environ); import oomph; assert os.environ == before") == ""


def test_public_names_load_on_first_use() -> None:
    assert fresh("import oomph; print(oomph.InvalidSize.__name__)") == "InvalidSize\n"


@pytest.mark.medium
def test_public_subpackages_load_on_first_use() -> None:
    assert fresh("import oomph; print(oomph.data.Loader.__name__)") == "Loader\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    import oomph

    with pytest.raises(AttributeError, match="'oomph' has no attribute 'nope'"):
        oomph.nope  # noqa: B018


@pytest.mark.medium
def test_commands_that_need_no_torch_import_none() -> None:
    code = "import sys; from oomph.cli import run; run(['doctor']); run(['gpus']); assert 'torch' not in sys.modules"
    fresh(code)
