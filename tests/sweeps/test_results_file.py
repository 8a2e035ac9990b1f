from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oomph.errors import InvalidFile, MissingFile, UsageError
from oomph.sweeps import RESULTS_FILE, CellResult, Grid, ResultsFile, Status, SweepHeader, lock_sweep

GRID = Grid((("batch", (1, 2, 3)),))
HEADER = SweepHeader(GRID, {"--batch": ("1,2,3",), "--metric": ("a (.)", "b (.)")}, "/data")


def make_result(number: int) -> CellResult:
    return CellResult(
        GRID.cells()[number],
        Status.DONE,
        {"map50": 0.5},
        host_peak=1 << 33,
        gpu_peak=None,
        seconds=1.5,
        predicted=5,
        extra={"images_per_second": 12},
        exit_code=0,
    )


def failed_result(number: int) -> CellResult:
    return CellResult(GRID.cells()[number], Status.OUT_OF_MEMORY, why="it was ß too large", fix=("a", "$ b"))


def test_rows_are_read_back_in_the_order_of_the_grid(tmp_path: Path) -> None:
    file = ResultsFile.create(tmp_path, HEADER)
    file.append(failed_result(2))
    file.append(make_result(0))
    again = ResultsFile(tmp_path)
    assert again.header == HEADER
    assert again.results == file.results == (make_result(0), failed_result(2))


def test_a_cell_never_has_two_rows(tmp_path: Path) -> None:
    file = ResultsFile.create(tmp_path, HEADER)
    file.append(make_result(0))
    with pytest.raises(ValueError, match="batch=1,seed=0 has a row already"):
        ResultsFile(tmp_path).append(failed_result(0))


def test_a_row_that_is_cut_anywhere_is_repaired_by_the_next_one(tmp_path: Path) -> None:
    file = ResultsFile.create(tmp_path, HEADER)
    path = tmp_path / RESULTS_FILE
    file.append(make_result(0))
    complete = len(path.read_bytes())
    file.append(make_result(1))
    whole = path.read_bytes()
    for cut in (*range(complete, len(whole), 50), len(whole) - 1):
        path.write_bytes(whole[:cut])
        torn = ResultsFile(tmp_path)
        assert torn.results == (make_result(0),)
        torn.append(failed_result(2))
        assert ResultsFile(tmp_path).results == (make_result(0), failed_result(2))


def test_zeros_of_a_power_failure_at_the_end_are_ignored(tmp_path: Path) -> None:
    ResultsFile.create(tmp_path, HEADER).append(make_result(0))
    with (tmp_path / RESULTS_FILE).open("ab") as file:
        file.write(b"\0" * 100 + b"\n")
    assert ResultsFile(tmp_path).results == (make_result(0),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it has no header"),
        ('{"oomph": "record", "version": 1}\n', "line 1: this is an oomph document of kind 'record'"),
        ('{"oomph": "sweep", "version": 9}\n', "line 1: this sweep document has version 9"),
    ],
)
def test_damaged_files_are_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / RESULTS_FILE).write_text(content)
    with pytest.raises(InvalidFile, match=message):
        ResultsFile(tmp_path)


def test_damage_in_the_middle_is_not_ignored(tmp_path: Path) -> None:
    ResultsFile.create(tmp_path, HEADER).append(make_result(0))
    path = tmp_path / RESULTS_FILE
    header, row = path.read_text().splitlines()
    path.write_text(f"{header}\n{row[:40]}\n{row}\n")
    with pytest.raises(InvalidFile, match="line 2 is not JSON"):
        ResultsFile(tmp_path)
    path.write_text(f"{header}\n{row.replace('0.5', 'true')}\n")
    with pytest.raises(InvalidFile, match=r"metrics\.map50 should be a float"):
        ResultsFile(tmp_path)


def test_a_folder_without_a_sweep_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no sweep in"):
        ResultsFile(tmp_path)


@pytest.mark.medium
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from oomph.sweeps import lock_sweep
with lock_sweep(Path({str(tmp_path)!r})):
    print("locked", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(UsageError, match="is still running"), lock_sweep(tmp_path):
            pass
        process.kill()
    with lock_sweep(tmp_path):
        pass
