from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from oomph.errors import InvalidFile, MissingFile, UsageError
from oomph.monitor import Recorder
from oomph.prediction import Prediction
from oomph.report.run._commands import next_commands
from oomph.report.run._events import run_events
from oomph.report.run._run_data import load_run, load_runs
from oomph.report.run._summary import run_state, summarize
from oomph.units import GIB

from .runs import HEADER, START, gpu_lines, plan_of, watched_process, write_record, write_run_folder


def test_a_run_folder_is_read_completely(tmp_path: Path, prediction: Prediction) -> None:
    run = load_run(write_run_folder(tmp_path / "exp", prediction))
    assert run.plan == plan_of(prediction)
    assert (run.name, run.is_folder, len(run.record.steps)) == ("exp", True, 5)
    assert [row["epoch"] for row in run.epochs] == [1, 2, 3]
    assert "map50" not in run.epochs[0]
    assert run.issues is not None
    assert [(issue.count, issue.skipped, issue.examples) for issue in run.issues] == [("2 image", True, ("a b.jpg",))]
    assert [picture.path.name for picture in run.pictures] == ["val_predictions.png", "train_batch0.jpg"]
    assert run.predicted.peak == int(prediction.host.value)
    assert run.predicted.budget == plan_of(prediction).budget + plan_of(prediction).reserved
    facts = dict(summarize(run).facts)
    assert facts["best mAP50-95"] == "0.500 (mAP50 0.750, epoch 3)"
    assert facts["epochs"] == "3 of 3"


def test_old_names_of_pictures_are_found(tmp_path: Path, prediction: Prediction) -> None:
    folder = write_run_folder(tmp_path / "exp", prediction)
    (folder / "train_batch0.jpg").rename(folder / "train_batch.png")
    assert [picture.path.name for picture in load_run(folder).pictures] == ["val_predictions.png", "train_batch.png"]


def test_ranks_are_read_in_order_and_a_rank_without_lines_is_left_out(tmp_path: Path) -> None:
    for rank in (0, 1, 2, 10):
        name = "record.jsonl" if rank == 0 else f"record-{rank}.jsonl"
        write_record(tmp_path / name, gpu_lines(3, device=rank % 4, gpus=4))
    (tmp_path / "record-3.jsonl").write_text("")
    (tmp_path / "record-x.jsonl").write_text("not a rank")
    run = load_run(tmp_path)
    assert [rank.rank for rank in run.ranks] == [0, 1, 2, 10]
    assert run.findings == (), "memory of another rank on its own GPU is no problem"


def test_a_record_of_an_older_oomph_has_no_plan(tmp_path: Path) -> None:
    lines = [{"t": START, "event": "prediction", "allocated": 5 * GIB, "reserved": 6 * GIB, "host": GIB}]
    sample = {"rss": GIB, "main_rss": GIB}
    run = load_run(write_record(tmp_path / "a.jsonl", [*lines, {"t": START + 1, "sample": sample}]))
    assert (run.plan, run.uses_gpu, run.predicted.peak, run.measured_peak) == (None, False, GIB, GIB)


@pytest.mark.parametrize("plan", [None, 5, {}, {"oomph": "plan", "version": 99}, {"oomph": "plan", "version": 1}])
def test_a_plan_that_cannot_be_read_is_left_out(tmp_path: Path, plan: object) -> None:
    run = load_run(write_record(tmp_path / "a.jsonl", [{"t": START, "event": "plan", "plan": plan}]))
    assert run.plan is None


def test_what_is_not_a_run_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path, error, text in (
        (tmp_path / "none", MissingFile, "there is no file"),
        (tmp_path, MissingFile, r"there is no record.jsonl in .* name a folder of `oomph train`, or a Record"),
        (tmp_path / "notes.txt", InvalidFile, "is not a Record"),
    ):
        with pytest.raises(error, match=text):
            load_run(path)
    record = write_record(tmp_path / "a.jsonl", [])
    with pytest.raises(UsageError, match="named twice"):
        load_runs([record, tmp_path / "." / "a.jsonl"])


def test_runs_of_one_name_are_numbered(tmp_path: Path) -> None:
    paths = [write_record(tmp_path / folder / "run.jsonl", []) for folder in "abc"]
    assert [run.name for run in load_runs(paths)] == ["run", "run (2)", "run (3)"]


def state_of(path: Path) -> str:
    return run_state(load_run(path))


def test_states(tmp_path: Path) -> None:
    step = {"t": START + 60, "step": {"step": 9, "loss": 1.0}}
    error = {"t": START + 61, "event": "error", "error": "ValueError", "text": "bad <b>value</b>"}
    interrupt = {**error, "error": "KeyboardInterrupt", "text": ""}
    stopped = {"t": START + 61, "event": "stopped", "step": 9}
    assert state_of(write_record(tmp_path / "a.jsonl", [step])) == "finished"
    assert state_of(write_record(tmp_path / "b.jsonl", [step, error])) == "failed"
    assert state_of(write_record(tmp_path / "c.jsonl", [step, interrupt])) == "stopped"
    assert state_of(write_record(tmp_path / "d.jsonl", [step, stopped])) == "stopped"
    assert state_of(write_record(tmp_path / "e.jsonl", [step], ended=False)) == "killed"
    failed = load_run(tmp_path / "b.jsonl")
    assert "ValueError: bad <b>value</b>" in summarize(failed).sentence
    assert summarize(failed).level == "bad"
    with (tmp_path / "d.jsonl").open("a") as file:  # resumed and finished
        file.write(json.dumps({**HEADER, "start_time": START + 100, "resumed": True}) + "\n")
        file.write(json.dumps({"t": START + 200, "event": "end"}) + "\n")
    run = load_run(tmp_path / "d.jsonl")
    assert run_state(run) == "finished"
    assert [(event.time, event.label) for event in run_events(run)] == [(61.0, "stopped"), (100.0, "resumed")]


def test_a_running_run_says_so(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.jsonl")
    assert "just started" in summarize(load_run(tmp_path / "a.jsonl")).sentence
    recorder.step({"step": 1, "seconds": 0.1})
    summary = summarize(load_run(tmp_path / "a.jsonl"))
    assert (summary.state, summary.level) == ("running", "good")
    recorder.close()


@pytest.mark.medium
def test_a_run_killed_by_sigkill_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with watched_process(file) as process:
        assert state_of(file) == "running"
        os.kill(process.pid, signal.SIGKILL)
    run = load_run(file)
    assert run_state(run) == "killed"
    assert summarize(run).sentence.startswith("Killed after")
    assert run_events(run)[-1].label in {"unexpected-end", "oom-kill"}


def test_the_worst_rank_decides(tmp_path: Path) -> None:
    write_record(tmp_path / "record.jsonl", gpu_lines(2))
    write_record(tmp_path / "record-1.jsonl", gpu_lines(2, device=1), ended=False)
    run = load_run(tmp_path)
    assert run_state(run) == "killed"
    with Recorder(tmp_path / "record-1.jsonl"):
        assert run_state(load_run(tmp_path)) == "finished", "rank 1 has not closed its Record yet"
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "state.pt").touch()
    assert [command.text.split()[0] for command in next_commands(run, "killed")] == ["torchrun", "oomph", "oomph"]


def test_commands_fit_the_state(tmp_path: Path, prediction: Prediction) -> None:
    run = load_run(write_run_folder(tmp_path / "it's a run", prediction))
    finished = [command.text for command in next_commands(run, "finished")]
    assert [text.split()[1] for text in finished] == ["val", "detect", "explain", "report"]
    assert f"""--weights '{tmp_path}/it'"'"'s a run/weights/best.pt'""" in finished[0]
    assert next(next_commands(run, "killed")).text.startswith("oomph train --resume ")


def test_findings_and_retries_have_the_time_where_they_happened(tmp_path: Path) -> None:
    lines = gpu_lines(60)
    lines[62]["step"]["loss"] = "nan"  # JSON has none
    step = {"step": 40, "retries": 2, "fallbacks": ["micro-batches of 4 (slower)"]}
    lines.append({"t": START + 50, "event": "oom", "kind": "cuda-out-of-memory", "step": 40, "snapshot": "a.pickle"})
    lines.append({"t": START + 50.5, "step": step})
    run = load_run(write_record(tmp_path / "a.jsonl", lines))
    events = {event.label: event for event in run_events(run)}
    assert events["oom"].time == 50.0
    assert events["oom"].text.endswith("(cuda-out-of-memory). Its memory snapshot is a.pickle.")
    assert events["retry"].text == "Step 40 was completed after 2 retries: micro-batches of 4 (slower)."
    assert events["non-finite-loss"].time == lines[62]["t"] - START
    assert run.retries == 2


def test_results_with_garbage_are_read_as_far_as_they_are_numbers(tmp_path: Path, prediction: Prediction) -> None:
    folder = write_run_folder(tmp_path / "exp", prediction)
    garbage = "epoch,loss,map50\n1,0.5,nan\n<b>,1,2\n2,inf,0.5,7,8\n\n\x00,\n3\n"
    (folder / "results.csv").write_text(garbage)
    (folder / "config.json").write_text("[1, 2")
    (folder / "data_issues.json").write_text('{"train": [5, {"count": {"a": 1}}], "val": "x"}')
    (folder / "val_predictions.png").write_text("no picture")
    run = load_run(folder)
    assert [dict(row) for row in run.epochs] == [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "map50": 0.5}, {"epoch": 3}]
    assert run.config == {}
