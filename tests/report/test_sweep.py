from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from oomph.report import ForecastReport, SweepProgress, SweepReport, emit
from oomph.sweeps import Cell, CellForecast, CellProgress, CellResult, Goal, Grid, Status
from oomph.units import GIB

GRID = Grid((("batch", (8, 16)), ("img", (320, 640))), (0, 1))
CELLS = GRID.cells()


def make_result(cell: Cell, metric: float, memory: float) -> CellResult:
    return CellResult(
        cell,
        Status.DONE,
        {"map50": metric},
        host_peak=GIB,
        gpu_peak=int(memory * GIB),
        seconds=90.0,
        predicted=int(memory * GIB),
        extra={"images/s": 12.5},
        exit_code=0,
    )


RESULTS = (
    make_result(CELLS[0], 0.5, 1),
    make_result(CELLS[1], 0.52, 1),
    make_result(CELLS[2], 0.6, 2),
    CellResult(CELLS[3], Status.KILLED, why="by SIGKILL", fix=("$ dmesg",), seconds=3.0),
    make_result(CELLS[4], 0.5, 1.5),
    CellResult(CELLS[6], Status.SKIPPED, why="it needs 9 GiB", predicted=9 * GIB, fix=("Use less.",)),
)
REPORT = SweepReport(GRID, RESULTS, Goal("map50"), "runs/sweep/x")


def text(report: SweepReport) -> str:
    stream = io.StringIO()
    emit(report, as_json=False, stream=stream)
    return stream.getvalue()


def test_the_report_reads_well() -> None:
    assert text(REPORT) == EXPECTED


EXPECTED = """\
batch  img  predicted      GPU    RAM     time  images/s          map50     status
    8  320      1 GiB    1 GiB  1 GiB  90.00 s      12.5  0.510 ± 0.014  *  done
    8  640      2 GiB    2 GiB  1 GiB  90.00 s      12.5          0.600  *  1 done, 1 killed
   16  320    1.5 GiB  1.5 GiB  1 GiB  90.00 s      12.5          0.500     done
   16  640      9 GiB                                                       skipped
* every cell with a better map50 needs more memory
batch=8,img=640,seed=1: killed: by SIGKILL.
    $ dmesg
batch=16,img=640,seed=0: skipped: it needs 9 GiB.
    Use less.
2 cells not run yet; continue with:
    $ oomph sweep --resume runs/sweep/x

map50 against memory; * is on the front
0.600 |                                                           *
      |
      |
      |
      |
      |
      |
      |
      |
      |
      |*
0.500 |                              o
      +------------------------------------------------------------
       1 GiB                                                  2 GiB

batch 8, img 640 has the best map50: 0.600 with 2 GiB in 2 min.
img 320 instead of 640 saves 50 % of the memory for 9.0 points of map50.
results are in runs/sweep/x
"""


def test_the_document_has_everything() -> None:
    document = REPORT.document()
    assert document["missing"] == 2
    assert document["front"]["memory"] == [{"batch": 8, "img": 320}, {"batch": 8, "img": 640}]
    assert [cell["status"] for cell in document["cells"]] == ["done", "done", "done", "killed", "done", "skipped"]


def test_csv_has_a_line_per_cell() -> None:
    lines = REPORT.csv().splitlines()
    assert lines[0] == ("batch,img,seed,status,predicted,host_peak,gpu_peak,seconds,exit_code,images/s,map50,why")
    assert lines[1] == "8,320,0,done,1073741824,1073741824,1073741824,90.0,0,12.5,0.5,"
    assert lines[4] == "8,640,1,killed,,,,3.0,,,,by SIGKILL"


def test_a_sweep_without_results_is_still_a_report() -> None:
    empty = SweepReport(GRID, (), Goal("map50"), "runs/sweep/x")
    assert "8 cells not run yet" in text(empty)
    assert empty.document()["recommendation"] == []


def test_control_characters_and_markup_are_shown_as_text() -> None:
    grid = Grid((("name", ("[red]\x1b[2J",)),))
    result = CellResult(grid.cells()[0], Status.FAILED, why="[bold]\x07", fix=())
    shown = text(SweepReport(grid, (result,), Goal("m"), "x"))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[red]?[2J" in shown
    assert "[bold]?" in shown


def test_the_table_fits_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    console.print(REPORT.render(plain=False))


def test_progress_in_a_pipe_is_a_line_per_cell(capsys: object) -> None:
    del capsys
    stream = io.StringIO()
    progress = SweepProgress(8, done=1)
    progress._console.file = stream
    with progress:
        progress.on_progress(CellProgress(CELLS[1], 1.0, GIB, None))
        progress.on_result(RESULTS[1])
        progress.on_result(RESULTS[3])
    assert stream.getvalue().splitlines() == [
        "[2/8] batch=8,img=320,seed=1: map50 0.520, 1 GiB, 90.00 s",
        "[3/8] batch=8,img=640,seed=1: killed: by SIGKILL",
    ]


def test_numbers_are_never_cut_on_a_narrow_terminal() -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=True, color_system=None)
    console.print(REPORT.render(plain=False), crop=False)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.510 ± 0.014" in shown
    assert "…" not in shown


def test_columns_in_which_nothing_is_unusual_are_left_out() -> None:
    usual = tuple(dataclasses.replace(row, extra={"micro-batches": 1.0, "retries": 0.0}) for row in RESULTS)
    assert "retries" not in text(dataclasses.replace(REPORT, results=usual))
    retried = (dataclasses.replace(usual[0], extra={"micro-batches": 1.0, "retries": 2.0}), *usual[1:])
    assert "retries" in text(dataclasses.replace(REPORT, results=retried))
    assert "micro-batches" not in text(dataclasses.replace(REPORT, results=retried))


def test_predictions_are_shown_once_per_combination_and_say_what_is_skipped() -> None:
    why = "micro-batches of 2 with everything recomputed need up to 23 GiB, and the budget is 3.94 GiB"
    forecasts = [
        CellForecast(cell, peak=GIB, host=GIB, seconds=90.0, micro_batches=2)
        if dict(cell.values)["img"] == 320
        else CellForecast(cell, why_not=why, fix="use less")
        for cell in CELLS
    ]
    stream = io.StringIO()
    emit(ForecastReport(tuple(forecasts), GRID.names), as_json=False, stream=stream)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[1].split() == ["8", "320", "1", "GiB", "2", "min", "2"]
    assert lines[2].endswith(f"skipped: {why}")
