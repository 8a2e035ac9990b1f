from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import oomph
from oomph.errors import UsageError
from oomph.sweeps import CellProgress, CellResult, Status, SweepResult
from oomph.sweeps._job_process import compute_metrics
from oomph.sweeps._run_files import read_progress
from oomph.units import MIB

from . import small_jobs
from .processes import processes_with

FILE = Path(small_jobs.__file__)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert processes_with(str(tmp_path)) == []


def sweep(job: str = "loss_job", metric: str = "output", file: Path = FILE, **options: Any) -> SweepResult:
    options = {"batch": 4, "size": 16, "steps": 3} | options
    return oomph.sweep(f"{file}:{job}", metric=f"{file}:{metric}", **options)


def train_alone(batch: int, size: int, seed: int, steps: int) -> nn.Module:
    """Return the model of a cell as a plain loop trains it."""
    torch.manual_seed(seed)
    model = small_jobs.net().train()
    optimizer = small_jobs.sgd(model)
    for _ in range(steps):
        small_jobs.step(model, small_jobs.make_batch(batch, size)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.mark.medium
def test_two_by_two_cells_measure_what_plain_loops_compute() -> None:
    readings: list[CellProgress] = []
    result = sweep(metric="several", batch=(4, 64), size=(16, 64), on_progress=readings.append)
    assert {reading.cell for reading in readings} == {row.cell for row in result.results}
    assert [row.status for row in result.results] == [Status.DONE] * 4
    for row in result.results:
        batch, size = (int(value) for _, value in row.cell.values)
        model = train_alone(batch, size, row.cell.seed, steps=3)
        with torch.no_grad():
            expected = small_jobs.several(model, size)
        assert row.metrics == pytest.approx({name: float(value) for name, value in expected.items()}, abs=1e-5)
        assert row.predicted == pytest.approx(row.memory, rel=0.2)
        assert row.extra["samples_per_second"] > 0
        assert (row.extra["micro_batches"], row.extra["retries"]) == (1, 0)
    memory = {tuple(value for _, value in row.cell.values): row.memory or 0 for row in result.results}
    assert memory[64, 64] > memory[4, 64] + 60 * MIB
    assert memory[64, 64] > memory[64, 16] + 60 * MIB
    assert [read_progress(result.folder / "cells" / row.cell.name) for row in result.results] == [1.0] * 4
    assert result.folder == Path("runs/sweep/sweep")
    assert result.metric == "output"
    front = [summary for summary in result.summaries if is_on_front(summary, result)]
    assert list(result.front) == sorted(front, key=lambda summary: summary.memory or 0)
    assert re.match(r"batch \d+, size \d+ has the best output: ", result.recommendation[0])


def is_on_front(summary: Any, result: SweepResult) -> bool:
    others = [other for other in result.summaries if other is not summary]
    score = summary.metrics["output"].mean
    return all(other.metrics["output"].mean < score or other.memory > summary.memory for other in others)


@pytest.mark.large
def test_a_job_with_a_step_and_two_seeds_that_differ() -> None:
    result = sweep("step_job", size=[(16, 24)], seeds=2, minimize=True)
    assert [row.cell.name for row in result.results] == ["batch=4,size=16x24,seed=0", "batch=4,size=16x24,seed=1"]
    first, second = (row.metrics["output"] for row in result.results)
    assert first != second
    assert (result.summaries[0].seeds, result.summaries[0].metrics["output"].mean) == (2, (first + second) / 2)


@pytest.mark.large
def test_a_cell_that_cannot_fit_is_a_row_and_a_batch_that_does_not_is_split() -> None:
    small, split, large = sweep(batch=16, size=(16, 160, 2048), budget="ram=500MiB").results
    assert (small.status, split.status) == (Status.DONE, Status.DONE), split.why
    assert split.extra["retries"] == 0  # the guard has the room that the plan left
    assert (small.extra["micro_batches"], split.extra["micro_batches"] > 1) == (1, True)
    assert (split.memory or 0) < 500 * MIB
    assert (large.status, large.exit_code) == (Status.OUT_OF_MEMORY, 3)
    assert re.match(
        r"micro-batches of 1 need up to .* GiB, and the budget is 436 MiB \(500 MiB minus 64 MiB for", large.why
    )
    assert large.fix


@pytest.mark.medium
def test_a_metric_that_raises_is_a_row() -> None:
    result = sweep(metric="broken")
    (row,) = result.results
    assert row.status is Status.FAILED
    assert row.why == f"the metric {FILE}:broken raised ValueError: no images of size 16"
    assert row.fix == ("fix the function.",)
    assert (result.summaries, result.metric, result.front, result.recommendation) == ((), None, (), ())


@pytest.mark.medium
def test_a_stopped_sweep_is_resumed_and_another_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(FILE.read_text())
    names: list[str] = []

    def stop(result: CellResult) -> None:
        names.append(result.cell.name)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(batch=(2, 3), file=file, on_result=stop)
    with pytest.raises(UsageError, match="batch is 2, 4, but in the sweep in runs/sweep/sweep it is 2, 3"):
        sweep(batch=(2, 4), file=file, resume=True)
    with pytest.raises(UsageError, match=r"steps is '9', but in the sweep in runs/sweep/sweep it is '3'"):
        sweep(batch=(2, 3), file=file, steps=9, resume=True)
    result = sweep(batch=(2, 3), file=file, resume=True, on_result=lambda row: names.append(row.cell.name))
    assert names == [row.cell.name for row in result.results] == ["batch=2,size=16,seed=0", "batch=3,size=16,seed=0"]
    assert result.folder == Path("runs/sweep/sweep")
    assert sweep(batch=(2, 3), file=file, resume=True) == result
    file.write_text(FILE.read_text() + "\n# changed")
    with pytest.raises(UsageError, match="the file of the job or the metric has changed"):
        sweep(batch=(2, 3), file=file, resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": ()}, "batch is an empty list; list at least one batch size, such as (16, 32)."),
        ({"batch": (8, 0)}, "batch is 0; set batch to a whole number of at least 1."),
        ({"size": []}, "size is an empty list; list at least one size, such as (224, 320), or omit it."),
        ({"size": ("640x",)}, "the size is '640x'; write a whole number, or HEIGHTxWIDTH such as 640x480."),
        ({"size": 0}, "the size is 0; set it to numbers of at least 1."),
        ({"steps": 0}, "steps is 0; set steps to a whole number of at least 1."),
        ({"seeds": 0}, "seeds is 0; set seeds to a whole number of at least 1."),
        ({"jobs": 0.5}, "jobs is 0.5; set jobs to a whole number of at least 1."),
        ({"budget": "disk=1GiB"}, "the budget is 'disk=1GiB'; write a size, or gpu=8GiB,ram=16GiB"),
        ({"timeout": "soon"}, "'soon' is not a duration; write a number and a unit, such as 90s, 10m or 2h."),
        ({"name": "a/b"}, "'a/b' is not a valid run name; use a name without slashes."),
    ],
)
def test_invalid_arguments_are_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        sweep(**options)
    assert not Path("runs").exists()


def test_a_job_that_is_no_reference_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="cells run in processes of their own"):
        oomph.sweep(small_jobs.loss_job(), metric="a.py:b", batch=1, steps=1)  # type: ignore[arg-type]


@pytest.mark.medium
def test_what_cannot_be_loaded_is_one_sentence_before_any_cell(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no function 'missing'; name a function of that file that returns a metr"):
        sweep(metric="missing")
    with pytest.raises(UsageError, match=r"returned a value of type Sequential; return an oomph\.Job"):
        sweep(job="net")
    with pytest.raises(UsageError, match=r"the file '.*none\.py' does not exist; check the path"):
        sweep(file=tmp_path / "none.py")
    nested = tmp_path / "nested.py"
    nested.write_text(
        "import oomph\nprint('hello')\noomph.sweep('nested.py:a', metric='nested.py:b', batch=1, steps=1)"
    )
    with pytest.raises(
        UsageError, match=r"oomph\.sweep is called when the file of its job is loaded; put the call under"
    ):
        sweep(file=nested)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, {"metric": 0.5}),
        (torch.tensor(2), {"metric": 2.0}),
        ({"a": 1, "b": torch.tensor([0.5])}, {"a": 1.0, "b": 0.5}),
    ],
)
def test_a_metric_is_a_number_or_a_dict_of_numbers(value: object, expected: dict[str, float]) -> None:
    assert compute_metrics(lambda *_: value, nn.Linear(1, 1), 0, "file.py:metric") == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "the metric metric is nan; check whether training diverged"),
        ({"loss": math.inf}, "the metric loss is inf; check whether training diverged"),
        (None, "the metric metric is None; return a float or a dict of floats"),
        (torch.zeros(2), "the metric metric is tensor([0., 0.]); return a float or a dict of floats"),
        ({}, "the metric file.py:metric returned an empty dict; return a float or a dict of floats"),
    ],
)
def test_a_metric_that_is_no_finite_number_is_one_sentence(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        compute_metrics(lambda *_: value, nn.Linear(1, 1), 0, "file.py:metric")


def test_memory_that_runs_out_in_a_metric_is_explained_as_such() -> None:
    def metric(*_: object) -> float:
        raise MemoryError

    with pytest.raises(MemoryError):
        compute_metrics(metric, nn.Linear(1, 1), 0, "file.py:metric")
