from __future__ import annotations

import io
import itertools
import json
import pickle
from pathlib import Path

import pytest

from oomph.cli import run
from oomph.detect import detection_job
from oomph.errors import UsageError
from oomph.machine import this_device

SCRIPT = str(Path(__file__).parents[1] / "script" / "scripts" / "own_batches.py")
SIGNS = {"alloc": 1, "free_completed": -1}
JOB = str(Path(__file__).parents[2] / "examples/jobs/small_net.py") + ":job"


@pytest.mark.medium
def test_job_that_fits_is_reported_with_the_spare_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", JOB, "--batch", "8", "--size", "64", "--gpu", "RTX 3060"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Fits on GeForce RTX 3060 12GB, with ")
    for text in ("allocated", "needed", "full_speed", "saved activation", "Largest owners:", "would still fit"):
        assert text in shown


@pytest.mark.medium
def test_job_that_does_not_fit_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", JOB, "--batch", "256", "--img", "320", "--gpu", "RTX 3060"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Does not fit on GeForce RTX 3060 12GB: ")
    assert "micro_batch=" in shown


@pytest.mark.medium
def test_a_rank_of_several_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["predict", JOB, "--batch", "8", "--size", "64", "--gpu", "H200", "--json"]
    peaks = {}
    for parallel in (["--parallel", "ddp", "--ranks", "8"], ["--parallel", "fsdp2", "--ranks", "8"], []):
        assert run([*flags, *parallel]) == 0
        document = json.loads(capsys.readouterr().out)
        peaks[document["settings"]["parallel"]] = document["prediction"]["allocated"]["value"]
    assert peaks["fsdp2"] < peaks["none"] < peaks["ddp"]
    assert run([*flags, "--ranks", "8"]) == 2
    assert "set parallel to" in capsys.readouterr().err
    assert run([*flags, "--ranks", "8", "--parallel", "ddp", "--measure"]) == 2


@pytest.mark.medium
def test_built_in_names_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "yolov5n", "--batch", "1", "--gpu", "T4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["size"] == 640
    owners = [owner for owner in document["prediction"]["peak"]["owners"] if owner["module"] == "model.0.conv"]
    assert {owner["module_class"] for owner in owners} == {"Conv2d"}
    parameters = sum(parameter.numel() for parameter in detection_job("n", classes=80).model().parameters())
    assert document["prediction"]["allocated"]["value"] > 3 * 4 * parameters  # weights, gradients, momentum
    assert run(["predict", "mobilenet", "--batch", "1", "--gpu", "T4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    owners = [owner for owner in document["prediction"]["peak"]["owners"] if owner["module"] == "model.2.depthwise"]
    assert {owner["module_class"] for owner in owners} == {"ConvNorm"}
    assert run(["predict", "yolov5z"]) == 2
    assert "or one of yolov5n, yolov5s, yolov5m, yolov5l, yolov5x, mobilenet" in capsys.readouterr().err
    assert run(["predict", "yolov5n", "--measure"]) == 2


@pytest.mark.medium
def test_timeline_of_a_job_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot, trace = tmp_path / "step.pickle", tmp_path / "step.json"
    arguments = ["predict", JOB, "--batch", "8", "--size", "64", "--gpu", "RTX 3060", "--snapshot", str(snapshot)]
    assert run([*arguments, "--trace", str(trace)]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith(
        f"Memory snapshot: {snapshot}, to open at pytorch.org/memory_viz\nTrace: {trace}, to open at ui.perfetto.dev\n"
    )
    assert snapshot.is_file()
    assert json.loads(trace.read_text())["traceEvents"]
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [str(snapshot)]


@pytest.mark.medium
def test_timeline_of_a_script_has_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step.pickle"
    assert run(["predict", SCRIPT, "--gpu", "T4", "--yes", "--snapshot", str(path), "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)["prediction"]["allocated"]["value"]
    entries = pickle.loads(path.read_bytes())["device_traces"][0]  # noqa: S301  written above
    live = list(itertools.accumulate(SIGNS.get(entry["action"], 0) * entry["size"] for entry in entries))
    assert max(live) == predicted
    source = Path(SCRIPT).read_text().splitlines()
    lines: dict[str, set[str]] = {}
    for entry in (entry for entry in entries if entry["action"] == "alloc"):
        numbers = (frame["line"] for frame in entry["frames"] if frame["filename"] == SCRIPT)
        lines.setdefault(entry["category"], set()).update(source[number - 1].strip() for number in numbers)
    assert lines["parameter"] == {"model.to(options.device)"}
    assert "logits = self.head(self.norm(x))" in lines["gradient"]
    assert "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)" in lines["saved activation"]
    assert lines["optimizer state"] == {"scaler.step(optimizer)"}


def test_timeline_of_the_cpu_is_rejected_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", JOB, "--gpu", "cpu", "--snapshot", str(tmp_path / "step.pickle")]) == 2
    assert capsys.readouterr().err.endswith("CUDA allocator, and the target is the CPU; name a GPU.\n")
    assert run(["predict", SCRIPT, "--gpu", "cpu", "--trace", str(tmp_path / "step.json"), "--yes"]) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.medium
def test_suggested_micro_batch_fits(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", JOB, "--batch", "96", "--size", "320", "--gpu", "RTX 3060", "--json"]
    run(arguments)
    suggestion = json.loads(capsys.readouterr().out)["suggestion"]
    micro_batch = suggestion.split("micro_batch=")[1].split(")")[0]
    run([*arguments, "--micro-batch", micro_batch])
    assert json.loads(capsys.readouterr().out)["fits"] is True


@pytest.mark.large
@pytest.mark.skipif(this_device() != "cpu", reason="compares training on the CPU")
def test_measured_run_is_compared_and_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    arguments = ["predict", JOB, "--batch", "16", "--size", "64", "--json"]
    assert run([*arguments, "--measure"]) == 0
    report = json.loads(capsys.readouterr().out)
    predicted, measured = report["prediction"]["allocated"]["value"], report["measured"]["allocated"]
    assert predicted == pytest.approx(measured, rel=0.35)  # so small that the libraries' own memory matters
    assert (tmp_path / "oomph" / "calibration.json").is_file()
    assert run(arguments) == 0
    corrected = json.loads(capsys.readouterr().out)["prediction"]
    assert corrected["allocated"]["value"] == pytest.approx(measured, rel=0.02)
    assert corrected["allocated"]["origin"] == "measured"


@pytest.mark.medium
def test_json_contains_the_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", JOB, "--batch", "8", "--size", "64", "--gpu", "h200", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["oomph"] == "prediction"
    assert set(data["prediction"]) >= {"allocated", "reserved", "needed", "full_speed", "device", "seconds", "peak"}
    assert data["settings"]["batch"] == 8


@pytest.mark.medium
def test_script_is_predicted_with_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", SCRIPT, "--gpu", "H200", "--yes", "--json", "--", "--batch_size", "4", "--dtype", "float32"]
    assert run(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["settings"]["batch"] == 4
    assert data["script"]["optimizers"] == ["AdamW"]
    assert data["script"]["models"] == [{"name": "Gpt", "parameters": 468_992}]
    assert data["prediction"]["allocated"]["value"] > 2**20


@pytest.mark.large
def test_script_report_says_what_was_captured(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", str(Path(SCRIPT).with_name("amp_accumulation.py")), "--gpu", "RTX 3060", "--yes"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Fits on GeForce RTX 3060 12GB")
    assert "Captured: model Sequential (0.5 M parameters), AdamW, batches of 64 from the DataLoader, " in shown


@pytest.mark.parametrize(("answer", "is_run"), [("y\n", True), ("n\n", False)])
def test_script_is_run_only_with_permission(
    *, answer: str, is_run: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("oomph.script.capture_script", refuse)
    assert run(["predict", SCRIPT, "--gpu", "H200"]) == 2
    shown = capsys.readouterr().err
    assert "It may write files and use the network." in shown
    assert ("the script was started" in shown) is is_run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def refuse(*_: object) -> None:
    raise UsageError("the script was started", "")


@pytest.mark.medium
@pytest.mark.parametrize(
    "arguments",
    [
        ["predict"],
        ["predict", SCRIPT, "--gpu", "H200"],  # without --yes, and nobody can answer
        ["predict", SCRIPT, "--gpu", "H200", "--yes", "--precision", "bf16"],
        ["predict", SCRIPT, "--gpu", "H200", "--yes", "--batch", "0"],
        ["predict", "nowhere.py", "--gpu", "H200", "--yes"],
        ["predict", JOB, "--gpu", "H200", "--", "--epochs", "3"],
        ["predict", JOB, "--gpu", "H200", "--measure"],
        ["predict", JOB, "--gpu", "H200", "--allocator", "backend:cudaMallocAsync"],
        ["predict", "nowhere.py:job", "--gpu", "H200"],
        ["predict", JOB.replace(":job", ":nope"), "--gpu", "H200"],
        ["predict", JOB, "--gpu", "H300"],
        ["predict", JOB, "--gpu", "M3 Max 64GB"],
        ["predict", JOB, "--gpu", "H200", "--batch", "0"],
        ["predict", JOB, "--gpu", "H200", "--size", "huge"],
        ["predict", JOB, "--gpu", "H200", "--size", "3"],
        ["predict", JOB, "--gpu", "H200", "--precision", "fp8"],
        ["predict", JOB, "--gpu", "H200", "--size", "64", "--batch", "4", "--micro-batch", "8"],
    ],
    ids=" ".join,
)
def test_invalid_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("oomph: ")
    assert captured.err.count("\n") == 1


@pytest.mark.medium
def test_job_file_that_exits_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.py"
    file.write_text("import sys\n\ndef job():\n    sys.exit(3)\n")
    assert run(["predict", f"{file}:job", "--gpu", "H200"]) == 2
    assert "called sys.exit(3)" in capsys.readouterr().err


def test_modules_to_recompute_are_named_by_their_paths(capsys: pytest.CaptureFixture[str]) -> None:
    job = "examples/jobs/small_net.py:job"
    arguments = ["predict", job, "--gpu", "H200", "--batch", "8", "--size", "64", "--json"]
    assert run([*arguments, "--checkpointing", "0,4"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["checkpointing"] == ["0", "4"]
    assert run([*arguments, "--checkpointing", "0,nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
