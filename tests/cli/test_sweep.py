from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from oomph.cli import run
from tests.sweeps.processes import SCRIPT, processes_with, wait_until_gone

OOMPH = [sys.executable, "-m", "oomph"]
METRIC = ["--metric", r"score: (\S+)"]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def command(mode: str = "{mode}", *placeholders: str) -> list[str]:
    return ["--command", f"{sys.executable} {SCRIPT} {mode} ran {' '.join(placeholders)}", *METRIC]


def ran() -> Counter[str]:
    """Count how often each cell ran."""
    return Counter(Path("ran").read_text().splitlines())


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rows() -> list[dict[str, object]]:
    path = Path("runs/sweep/sweep/results.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()[1:]] if path.exists() else []


@pytest.mark.medium
def test_a_sweep_with_every_kind_of_death_ends_with_a_right_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modes = "mode=good,grow,killed,hang,crash,daemon"
    arguments = [*command("{mode}", "{mode}"), "--set", modes, "--budget", "ram=64MiB", "--timeout", "1.5s"]
    assert run(["sweep", *arguments, "--jobs", "2"]) == 0
    output = capsys.readouterr().out
    words = [line.split() for line in output.splitlines()]
    table = {line[0]: line for line in words if line and line[-1] in {"done", "memory", "killed", "failed", "out"}}
    assert table["good"][-3:] == ["0.500", "*", "done"] or table["good"][-2:] == ["0.500", "done"]
    assert table["grow"][-3:] == ["out", "of", "memory"]
    assert table["hang"][-2:] == ["timed", "out"]
    assert table["killed"][-1] == "killed"
    assert table["crash"][-1] == "failed"
    assert "mode=killed,seed=0: killed: by SIGKILL: the kernel's out-of-memory killer or another process." in output
    assert "mode=crash,seed=0: failed: RuntimeError: the data is broken (exit code 1)." in output
    assert "mode=hang,seed=0: timed out: it ran longer than 2 s." in output
    assert "the budget is 64 MiB." in output
    assert processes_with(str(tmp_path)) == []
    assert set(ran().values()) == {1}
    csv = Path("runs/sweep/sweep/results.csv").read_text().splitlines()
    assert csv[0] == "mode,seed,status,predicted,host_peak,gpu_peak,seconds,exit_code,score,why"
    assert len(csv) == 7


@pytest.mark.medium
def test_a_killed_sweep_is_resumed_without_running_a_cell_twice(tmp_path: Path) -> None:
    arguments = [*command("slow", "{batch}", "{seed}"), "--batch", "1,2,3", "--seeds", "2"]
    process = subprocess.Popen([*OOMPH, "sweep", *arguments], stdout=subprocess.DEVNULL)
    wait_for(lambda: len(rows()) >= 2)
    wait_for(lambda: any(str(SCRIPT) in line for line in processes_with(str(tmp_path))))
    assert subprocess.run([*OOMPH, "sweep", "--resume"], capture_output=True, check=False).returncode == 2
    process.kill()
    process.wait()
    assert wait_until_gone(str(tmp_path)) == []
    finished, started = len(rows()), ran()
    with Path("runs/sweep/sweep/results.jsonl").open("a") as file:
        file.write('{"oomph": "sweep cell", "vers')
    resumed = subprocess.run([*OOMPH, "sweep", "--resume"], capture_output=True, text=True, check=True)
    assert f"resuming runs/sweep/sweep: {finished} of 6 cells have results" in resumed.stdout
    assert len(rows()) == 6
    assert all(row["status"] == "done" for row in rows())
    # Only the cell that was interrupted has started a second time.
    assert sum(ran().values()) == 6 + (sum(started.values()) - finished)
    assert len(ran()) == 6
    assert run(["sweep", "--resume", "sweep"]) == 0
    assert len(rows()) == 6


@pytest.mark.medium
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_keeps_what_is_there(tmp_path: Path, number: int, code: int) -> None:
    arguments = [*command(), "--set", "mode=good,hang"]
    process = subprocess.Popen([*OOMPH, "sweep", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: "sleep 987" in processes_with(str(tmp_path)))
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert errors == "stopped; continue with: oomph sweep --resume runs/sweep/sweep\n"
    assert [row["status"] for row in rows()] == ["done"]
    assert processes_with(str(tmp_path)) == []
    assert run(["sweep", "--resume", "--timeout", "0.5s"]) == 0
    assert [row["status"] for row in rows()] == ["done", "timed out"]


@pytest.mark.medium
def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *command("good", "{batch}"), "--batch", "1,2", "--json", "--name", "mine"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["oomph"], document["folder"], document["missing"]) == ("sweep report", "runs/sweep/mine", 0)
    assert [cell["metrics"] for cell in document["cells"]] == [{"score": 0.5}] * 2
    assert document["recommendation"]


@pytest.mark.medium
def test_a_sweep_without_a_result_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *command("silent")]) == 1
    output = capsys.readouterr().out
    assert "seed=0: failed: the metric score was not found in its output." in output


@pytest.mark.medium
def test_a_terminal_shows_bars_and_is_restored() -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen([*OOMPH, "sweep", *command("slow")], stdout=follower, stderr=follower)
    os.close(follower)
    output = b""
    while True:
        try:
            data = os.read(leader, 4096)
        except OSError:
            break
        if not data:
            break
        output += data
    os.close(leader)
    assert process.wait() == 0
    assert b"seed=0" in output
    assert "━".encode() in output
    assert output.count(b"\x1b[?25l") == output.count(b"\x1b[?25h") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--img", "330"], "330 in --img is no multiple of 32, the stride of the network; write 320"),
        (["--img", "64", "--data", "nosuch.yaml"], "there is no file 'nosuch.yaml', which --data names"),
        (["--img", "64", "--weights", "nosuch.pt"], "there is no file 'nosuch.pt', which --weights names"),
        (["--img", "64", "--epochs", "0"], "--epochs is '0'; write a whole number"),
        (["--img", "64", *METRIC], "--metric is for sweeps of a --command"),
        (["--command", "x", *METRIC, "--cfg", "n"], "--cfg is for sweeps of detectors, without --command"),
        (["--img", "64", "--on", "spark"], "--on is 'spark'; write local, ray, or ray:0.5"),
        (["--img", "64", "--on", "ray:1.5"], "--on is 'ray:1.5'; write local, ray, or ray:0.5"),
        (["--img", "64", "--max-time", "soon"], "'soon' is not a duration"),
        ([], "nothing is swept; list values, such as --batch 16,32"),
        (["--command", "x {batch}", *METRIC, "--batch", "16,,32"], "--batch is '16,,32', which has an empty value"),
        (["--command", "x {batch}", *METRIC, "--batch", ""], "--batch is '', which has an empty value"),
        (["--command", "x {img}", *METRIC, "--img", "640x"], "'640x' in --img is not a whole number above 0"),
        (["--command", "x {batch}", *METRIC, "--batch", "0"], "'0' in --batch is not a whole number above 0"),
        (["--command", "x", *METRIC, "--set", "lr"], "--set 'lr' has no values; write --set lr=0.1,0.01."),
        (["--command", "x", *METRIC, "--set", "seed=1"], "seed is not an axis"),
        (["--command", "x {batch}", *METRIC], "the command uses {batch}, which has no values"),
        (["--command", "x", *METRIC, "--batch", "1"], "the command doesn't use {batch}"),
        (["--command", "x", "--metric", "("], "is not a regular expression"),
        (["--command", "x"], "no metric is given"),
        (["--command", "x", *METRIC, "--seeds", "0"], "--seeds is '0'"),
        (["--command", "x", *METRIC, "--jobs", "two"], "--jobs is 'two'"),
        (["--command", "x", *METRIC, "--timeout", "soon"], "'soon' is not a duration"),
        (
            ["--command", "x", *METRIC, "--budget", "disk=1GiB"],
            "the budget is 'disk=1GiB'; write a size, or gpu=8GiB,ram=16GiB",
        ),
        (["--command", "x", *METRIC, "--budget", "ram=x"], "'x' is not a size"),
        (["--command", "x", *METRIC, "--name", "a/b"], "is not a valid run name"),
        (["--resume"], "there is no sweep to resume in runs/sweep"),
        (["--resume", "other"], "there is no sweep 'other' to resume"),
        (["--resume", "other", "--name", "a"], "both --resume other and --name a select a sweep"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not Path("runs").exists() or not list(Path("runs/sweep").iterdir())


@pytest.mark.medium
def test_resume_refuses_another_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *command("good", "{batch}"), "--batch", "1"]) == 0
    assert run(["sweep", "--resume", "--batch", "1,2"]) == 2
    expected = "--batch is '1,2', but in the sweep in runs/sweep/sweep it is '1'; remove it, or start a new sweep."
    assert expected in capsys.readouterr().err
    assert run(["sweep", "--resume", "--minimize"]) == 2
    assert "it is not given" in capsys.readouterr().err


@pytest.mark.medium
def test_a_detector_sweep_that_is_refused_leaves_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--img", "64", "--cfg", "q"]) == 2
    assert "'q' is not a network" in capsys.readouterr().err
    assert not list(Path("runs/sweep").iterdir())
