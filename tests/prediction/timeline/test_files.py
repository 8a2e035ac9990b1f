"""The files of a timeline: checked before the prediction, written whole."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import NoReturn

import pytest
import torch.nn.functional as F

import oomph
from oomph.errors import MissingFile, UsageError
from oomph.machine import find_target
from oomph.prediction import TimelineFiles

from .traced_jobs import JOBS, TARGET, images, predicted


def test_predict_writes_what_is_requested(tmp_path: Path) -> None:
    job, settings = JOBS["sgd"]
    prediction = oomph.predict(job, settings, TARGET, snapshot=tmp_path / "a.pickle", trace=str(tmp_path / "b.json"))
    assert prediction.allocated == oomph.predict(job, settings, TARGET).allocated
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pickle", "b.json"]
    snapshot = pickle.loads((tmp_path / "a.pickle").read_bytes())  # noqa: S301  written above
    frames = [entry["frames"] for entry in snapshot["device_traces"][0]]
    assert any(frame["name"] == "body" for stack in frames for frame in stack)
    assert json.loads((tmp_path / "b.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (TimelineFiles("missing/a.pickle"), "there is no folder 'missing'; create it"),
        (TimelineFiles(trace="."), "'.' is a folder; name a file"),
        (TimelineFiles("same", "same"), "the snapshot and the trace are both 'same'; name two files"),
    ],
)
def test_wrong_files_are_rejected(files: TimelineFiles, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        files.check(TARGET)


def test_wrong_files_are_rejected_before_the_trace(tmp_path: Path) -> None:
    def fail() -> NoReturn:
        raise AssertionError("the model was built")

    job = oomph.Job(model=fail, batch=images, loss=F.mse_loss, optimizer=lambda _: fail())
    with pytest.raises(MissingFile):
        oomph.predict(job, oomph.Settings(batch=1), TARGET, snapshot=tmp_path / "none" / "a.pickle")
    with pytest.raises(UsageError, match="the target is the CPU; name a GPU"):
        oomph.predict(job, oomph.Settings(batch=1), "cpu", trace=tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_cpu_without_files_is_fine() -> None:
    TimelineFiles().check(find_target("cpu"))
    assert not TimelineFiles()


def test_a_file_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    trace, settings, target, _ = predicted("sgd", "default")
    name = "x" * 300  # longer than file systems allow
    with pytest.raises(UsageError, match=r"can't be written .*; name another file"):
        TimelineFiles(trace=tmp_path / name).write(trace, settings, target)
    assert not list(tmp_path.iterdir())
