from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomph.cli import run
from oomph.machine import this_device

JOB = str(Path(__file__).parents[2] / "examples/jobs/small_net.py") + ":job"


def test_a_job_that_fits_says_so_and_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", JOB, "--batch", "8", "--size", "64", "--gpu", "RTX 3060"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Fits on GeForce RTX 3060 12GB, with ")
    for words in ("allocated", "needed", "full_speed", "saved activation", "The largest owners:", "would still fit"):
        assert words in shown


def test_a_job_that_does_not_fit_gets_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", JOB, "--batch", "256", "--img", "320", "--gpu", "RTX 3060"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Does not fit on GeForce RTX 3060 12GB: ")
    assert "micro_batch=" in shown


def test_following_the_advice_makes_it_fit(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["predict", JOB, "--batch", "256", "--size", "320", "--gpu", "RTX 3060", "--json"]
    run(asked)
    advice = json.loads(capsys.readouterr().out)["next"]
    pieces = advice.split("micro_batch=")[1].split(")")[0]
    run([*asked, "--micro-batch", pieces])
    assert json.loads(capsys.readouterr().out)["fits"] is True


@pytest.mark.skipif(this_device() != "cpu", reason="compares training on the processor")
def test_measured_beside_predicted_and_remembered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    asked = ["predict", JOB, "--batch", "16", "--size", "96", "--json"]
    assert run([*asked, "--measure"]) == 0
    told = json.loads(capsys.readouterr().out)
    predicted, measured = told["prediction"]["allocated"]["value"], told["measured"]["allocated"]
    assert predicted == pytest.approx(measured, rel=0.35)  # small enough that what the libraries take weighs
    assert (tmp_path / "oomph" / "calibration.json").is_file()
    assert run(asked) == 0
    corrected = json.loads(capsys.readouterr().out)["prediction"]
    assert corrected["allocated"]["value"] == pytest.approx(measured, rel=0.02)
    assert corrected["allocated"]["origin"] == "measured"


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", JOB, "--batch", "8", "--size", "64", "--gpu", "h200", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["oomph"] == "prediction"
    assert set(data["prediction"]) >= {"allocated", "reserved", "needed", "full_speed", "device", "seconds", "peak"}
    assert data["settings"]["batch"] == 8


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict"],
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
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("oomph: ")
    assert captured.err.count("\n") == 1
