"""Whole runs that are started again: fake programs with the flags of real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from oomph.monitor import explain, load_record
from oomph.supervisor._run_command import _with_edit
from oomph.supervisor.retry import BatchSettings, Decision
from oomph.supervisor.retry._file_edit import FileEdit
from oomph.supervisor.retry._program import Restart
from tests.supervisor.runs import OOMPH, first_line, is_alive, on_terminal, python, run, started, wait_for

pytestmark = pytest.mark.medium

# As YOLOv5: --resume replaces all options by those that the run has saved, and each epoch ends with last.pt.
YOLOV5 = """
'''Train a YOLOv5 model.'''
import argparse, pathlib, sys
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--data"); parser.add_argument("--weights"); parser.add_argument("--workers", type=int, default=8)
parser.add_argument("--resume", nargs="?", const=True, default=False)
parser.add_argument("--project", default="runs/train")
opt = parser.parse_args()
folder, epoch = pathlib.Path(opt.project) / "exp", 0
if opt.resume:
    last = pathlib.Path(opt.resume)
    saved = dict(line.split(": ") for line in (last.parent.parent / "opt.yaml").read_text().splitlines())
    opt.batch_size, epoch, folder = int(saved["batch_size"]), int(last.read_text()), last.parent.parent
(folder / "weights").mkdir(parents=True, exist_ok=True)
(folder / "opt.yaml").write_text(f"batch_size: {opt.batch_size}\\nworkers: {opt.workers}\\n")
print("Logging results to", folder)
print("start", "batch", opt.batch_size, "epoch", epoch, "accumulate", max(round(64 / opt.batch_size), 1), flush=True)
while epoch < 4:
    limit = 40 if epoch < 2 else 20
    if opt.batch_size > limit:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB.")
    epoch += 1
    (folder / "weights/last.pt").write_text(str(epoch))
print("done", flush=True)
"""
TRAINER = """
import argparse, json, pathlib, sys
parser = argparse.ArgumentParser()
for flag, default in (("per_device_train_batch_size", 8), ("gradient_accumulation_steps", 1)):
    parser.add_argument("--" + flag, type=int, default=default)
parser.add_argument("--output_dir"); parser.add_argument("--resume_from_checkpoint", default="")
args = parser.parse_args()
batch, accumulate = args.per_device_train_batch_size, args.gradient_accumulation_steps
if args.resume_from_checkpoint:  # as transformers 4: the batch of the checkpoint counts
    state = pathlib.Path(args.resume_from_checkpoint) / "trainer_state.json"
    batch = json.loads(state.read_text())["train_batch_size"]
print("effective", batch * accumulate, "batch", batch, "resume", args.resume_from_checkpoint or "-", flush=True)
checkpoint = pathlib.Path(args.output_dir) / "checkpoint-10"
checkpoint.mkdir(parents=True, exist_ok=True)
(checkpoint / "trainer_state.json").write_text(json.dumps({"train_batch_size": batch}))
if batch > 6:
    raise SystemExit("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB")
"""
PLAIN = """
import sys
batch, accumulate, rest = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
print("run", batch, accumulate, rest, flush=True)
if batch > 10:
    print("Traceback (most recent call last):", "MemoryError", sep="\\n", file=sys.stderr)
    sys.exit(1)
"""


def start(
    tmp_path: Path, source: str, arguments: list[str], options: list[str]
) -> tuple[list[str], dict[str, Any], str]:
    (tmp_path / "train.py").write_text(source)
    result = run([*options, "--json", "result.json", "--", sys.executable, "train.py", *arguments], tmp_path)
    return (
        result.stdout.decode().splitlines(),
        json.loads((tmp_path / "result.json").read_text()),
        result.stderr.decode(),
    )


def test_yolov5_finishes_after_retries_from_its_checkpoint(tmp_path: Path) -> None:
    arguments = ["--data", "coco.yaml", "--weights", "yolov5s.pt", "--batch-size", "64"]
    lines, document, error = start(tmp_path, YOLOV5, arguments, ["--retry"])
    assert [line for line in lines if "Logging" not in line] == [
        "start batch 64 epoch 0 accumulate 1",
        "start batch 32 epoch 0 accumulate 2",
        "start batch 16 epoch 2 accumulate 4",
        "done",
    ]
    assert document["exit_code"] == 0
    assert [attempt["failure"] for attempt in document["attempts"]] == ["cuda-out-of-memory"] * 2 + [None]
    assert document["attempts"][2]["argv"][-4:] == ["--batch-size", "16", "--resume", "runs/train/exp/weights/last.pt"]
    assert "batch 32 (was 64) from the beginning (retry 1 of 5)" in error
    assert "opt.yaml" in error
    folder = tmp_path / "runs/run/exp"
    assert len((folder / "command.txt").read_text().splitlines()) == 3
    events = [event["event"] for event in load_record(folder / "record.jsonl").events]
    assert events == ["command", "retry", "command", "retry", "command", "exit", "end"]
    assert explain(folder / "record.jsonl").findings == (), "the run as a whole ended well"


def test_the_effective_batch_of_a_trainer_stays(tmp_path: Path) -> None:
    arguments = ["--output_dir", "out", "--per_device_train_batch_size", "24", "--gradient_accumulation_steps", "2"]
    lines, document, _ = start(tmp_path, TRAINER, arguments, ["--retry", "4"])
    assert lines == [
        "effective 48 batch 24 resume -",
        "effective 48 batch 12 resume out/checkpoint-10",
        "effective 48 batch 6 resume out/checkpoint-10",
    ]
    assert document["exit_code"] == 0


def test_checkpoints_are_changed_only_for_a_retry(tmp_path: Path) -> None:
    arguments = ["--output_dir", "out", "--per_device_train_batch_size", "24"]
    state = tmp_path / "out/checkpoint-10/trainer_state.json"
    saved = '{"train_batch_size": 24}'
    _, document, error = start(tmp_path, TRAINER, arguments, [])
    assert document["attempts"][0]["failure"] == "cuda-out-of-memory"
    assert "train.py --output_dir out --per_device_train_batch_size 12 --gradient_accumulation_steps 2" in error
    assert state.read_text() == saved, "advice changes nothing"
    other = TRAINER.replace("RuntimeError: CUDA out of memory", "KeyError: ")
    start(tmp_path, other, arguments, ["--retry"])
    assert state.read_text() == saved, "nor does another error"


def test_without_the_change_that_it_needs_a_run_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    edit = FileEdit(tmp_path / "file/opt.yaml", "", "batch_size", "YOLOv5")
    decision = _with_edit(Decision(Restart(("x",), edit=edit), BatchSettings(4), "batch 4"))
    assert decision.restart is None
    assert f"Not started again: {edit.path} can't be changed" in decision.why_not


def test_a_first_step_that_does_not_fit_is_retried_without_a_checkpoint(tmp_path: Path) -> None:
    source = PLAIN.replace("if batch", "assert not rest or open(rest[1])\nif batch")
    options = ["--retry", "--batch", "16", "--resume-args", "--resume last.pt"]
    lines, document, error = start(tmp_path, source, ["{batch}", "{accumulate}", "{resume}"], options)
    assert lines == ["run 16 1 []", "run 8 2 []"]
    assert document["exit_code"] == 0
    assert "There is no last.pt yet, so {resume} is empty." in error


def test_any_program_with_placeholders(tmp_path: Path) -> None:
    options = ["--retry", "--batch", "64", "--resume-args", "--from last"]
    lines, document, _ = start(tmp_path, PLAIN, ["{batch}", "{accumulate}", "{resume}"], options)
    assert lines == [
        "run 64 1 []",
        "run 32 2 ['--from', 'last']",
        "run 16 4 ['--from', 'last']",
        "run 8 8 ['--from', 'last']",
    ]
    assert document["exit_code"] == 0


def test_retries_end(tmp_path: Path) -> None:
    lines, document, error = start(
        tmp_path, PLAIN.replace("> 10", "> 0"), ["{batch}", "{accumulate}"], ["--retry", "2", "--batch", "64"]
    )
    assert len(lines) == 3
    assert document["exit_code"] == 1
    assert "2 retries used up" in error
    assert "The program could not allocate host memory" in error


def test_unknown_commands_and_other_errors_are_not_retried(tmp_path: Path) -> None:
    _, document, error = start(tmp_path, "raise SystemExit('MemoryError')", [], ["--retry"])
    assert len(document["attempts"]) == 1
    assert error.count("oomph doesn't know its flags") == 2, "before it starts, and when it dies"
    survived = "print('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB')\nraise KeyError('x')"
    _, document, _ = start(tmp_path, survived, ["{batch}"], ["--retry", "--batch", "8"])
    assert len(document["attempts"]) == 1
    assert document["attempts"][0]["failure"] == "python-error"
    assert document["why_not_retried"] == "Not started again: it did not run out of memory."


FAIL_AT_FIRST = """
import sys, time
print("batch", sys.argv[1], flush=True)
if int(sys.argv[1]) > 8:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
print("finished", flush=True)
"""


def test_processes_of_the_shell_survive_a_retry(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAIL_AT_FIRST)
    words = " ".join([*OOMPH, "--retry", "--batch", "16", "--", sys.executable, "train.py", "{batch}"])
    script = f"sleep 60 & echo $! > pid; exec {words} > >(tee train.log) 2> errors"
    result = subprocess.run(["bash", "-c", script], cwd=tmp_path, timeout=60, check=False)
    sleeper = int((tmp_path / "pid").read_text())
    try:
        assert result.returncode == 0
        assert is_alive(sleeper)
        wait_for(lambda: (tmp_path / "train.log").read_text() == "batch 16\nbatch 8\nfinished\n")
        assert "left" not in (tmp_path / "errors").read_text()
    finally:
        os.kill(sleeper, signal.SIGKILL)


STAY = """
import sys, time
print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", flush=True)
print("waiting", sys.argv[1], flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    if sys.argv[2:] == ["--catch"]:
        sys.exit(1)
    raise
"""


@pytest.mark.parametrize("flags", [[], ["--catch"]], ids=["killed", "caught"])
@pytest.mark.parametrize("key", [b"\x03", b"\x1c"], ids=["Ctrl-C", "Ctrl-backslash"])
def test_keys_that_end_the_command_are_no_lack_of_memory(tmp_path: Path, key: bytes, flags: list[str]) -> None:
    words = [*OOMPH, "--retry", "--batch", "16", "--", *python(STAY), "{batch}", *flags]
    with on_terminal(words, tmp_path) as terminal:
        terminal.wait_for(rb"waiting 16")
        terminal.type(key)
        terminal.wait()
        assert b"Starting it again" not in terminal.output


def test_a_signal_of_somebody_else_is_no_lack_of_memory(tmp_path: Path) -> None:
    with started([*OOMPH, "--retry", "--batch", "16", "--", *python(STAY), "{batch}"], tmp_path) as process:
        while b"waiting 16" not in first_line(process):
            pass
        for child in psutil.Process(process.pid).children():
            child.terminate()
        assert process.wait(60) == 143
