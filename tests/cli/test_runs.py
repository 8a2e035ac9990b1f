from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oomph.cli._runs import create_run_dir


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_second_run_of_a_name_gets_a_number_and_empty_folders_are_removed() -> None:
    with create_run_dir("exp") as first:
        (first / "weights").mkdir()
        with create_run_dir("exp") as second:
            assert (str(first), str(second)) == ("runs/train/exp", "runs/train/exp2")
    assert sorted(path.name for path in Path("runs/train").iterdir()) == ["exp"]


@pytest.mark.medium
def test_runs_that_start_together_get_separate_folders() -> None:
    code = """
import sys
from oomph.cli._runs import create_run_dir
print("ready", flush=True)
sys.stdin.readline()
with create_run_dir("both") as folder:
    (folder / "weights").mkdir()
    print(folder)
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    folders = {process.communicate()[0].strip() for process in processes}
    assert folders == {"runs/train/both", *(f"runs/train/both{number}" for number in (2, 3, 4))}
