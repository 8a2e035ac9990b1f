from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oomph
from oomph import Job
from oomph.cli._job_argument import _explorer
from oomph.cli._main import run
from oomph.cli.plan import _ways_out
from oomph.errors import CannotFit

SCRIPTS = Path(__file__).parents[1] / "script" / "scripts"
JOB = """
import torch
from torch import nn
import oomph

def job():
    return oomph.Job(
        model=lambda: nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Sequential(nn.Linear(4096, 4096), nn.GELU())),
        batch=lambda n, _: (torch.randn(n, 256), torch.randn(n, 4096)),
        loss=nn.functional.mse_loss,
        optimizer=lambda model: torch.optim.AdamW(model.parameters()),
    )
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return f"{path}:job"


def test_plan_is_shown_and_written(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "plan",
        job,
        "--batch",
        "65536",
        "--gpu",
        "RTX 3060",
        "--budget",
        "4GiB",
        "-o",
        str(tmp_path / "p.json"),
    ]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "fits on GeForce RTX 3060 12GB with batch 65536, fp32, in" in shown
    assert "micro-batches" in shown
    assert "Alternatives:" in shown
    assert "above the budget of 4 GiB" in shown
    plan = oomph.Plan.load(tmp_path / "p.json")
    assert sum(plan.settings.micro_batch_sizes) == 65536
    assert plan.planned_need.device.high <= 4 * 1024**3


def test_json_is_one_document(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", job, "--batch", "64", "--gpu", "H200", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["oomph"], document["version"]) == ("plan", 1)
    assert document["settings"]["batch"] == 64


def test_what_cannot_fit_exits_with_3(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", job, "--gpu", "RTX 3060", "--budget", "700MiB"]) == 3
    error = capsys.readouterr().err
    assert "micro-batches of 1" in error
    assert "and the budget is 700 MiB" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["yolov5s", "--gpu", "AWS P8"], "'AWS P8'"),
        (["yolov9", "--gpu", "H200"], "'yolov9' does not name a Job"),
        (["train.py", "--gpu", "H200", "--yes"], "the script 'train.py' does not exist"),
        (["train.py", "--gpu", "H200"], "'train.py' would be executed, and may write files and use the network; pass"),
        (["train.py", "--which-gpu"], "--which-gpu is for a Job, not for a script; name a GPU with --gpu"),
        (
            ["train.py", "--yes", "--size", "640"],
            "--size is for a Job; a script decides that itself; pass the script's",
        ),
        (["train.py", "--yes", "--precision", "bf16"], "--precision is for a Job"),
        (["train.py", "--yes", "--dataset", "data.py:photos"], "--dataset is for a Job"),
        (["train.py", "--yes", "--gpu", "H200", "--batch", "0"], "batch is 0"),
        (["train.py", "--yes", "--gpu", "H200", "--allow", "size"], "a plan can't change the size of a script; allow"),
        (["yolov5s", "--gpu", "H200", "--", "--epochs", "3"], "'yolov5s' is a Job, which takes no arguments"),
        (["yolov5s", "--gpu", "H200", "--allow", "model"], "'model' can't be allowed"),
        (["yolov5s", "--gpu", "H200", "--budget", "many"], "many"),
        (["yolov5s", "--gpu", "H200", "--budget", "disk=8GiB"], "the budget is 'disk=8GiB'; write a size, or gpu=8GiB"),
        (["train.py", "--yes", "--gpu", "H200", "--budget", "ram=8GiB"], "--budget ram= is for a Job"),
        (["yolov5s", "--gpu", "H200", "--max-slowdown", "0.5"], "max_slowdown is 0.5"),
        (["yolov5s", "--gpu", "H200", "--batch", "0"], "batch is 0"),
        (["yolov5s", "--which-gpu", "--gpu", "H200"], "--which-gpu plans for every GPU, so --gpu has no meaning"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_file_that_cannot_be_written(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", job, "--gpu", "H200", "-o", str(tmp_path / "no" / "p.json")]) == 2
    assert "can't be written" in capsys.readouterr().err


DATASET = """
import numpy as np

def photos():
    return [(np.zeros(256, np.float32), np.zeros(4096, np.float32))] * 4

def stream():
    return iter(photos())
"""


def test_dataset_is_planned_for(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos.py").write_text(DATASET)
    command = ["plan", job, "--batch", "2", "--gpu", "H200", "--dataset", f"{tmp_path}/photos.py:photos"]
    assert run([*command, "--budget", "ram=8GiB"]) == 0
    output = capsys.readouterr().out
    assert "DataLoader: num_workers=" in output
    assert "of host memory" in output
    assert run([*command[:-1], f"{tmp_path}/photos.py:stream"]) == 2
    assert "return a dataset with __getitem__ and __len__" in capsys.readouterr().err
    assert run([*command, "--which-gpu"]) == 2
    assert run(["plan", job, "--gpu", "H200", "--budget", "gpu=8GiB,ram=8GiB"]) == 2
    assert "host_budget has no effect without a dataset" in capsys.readouterr().err


@pytest.mark.medium
def test_the_largest_smaller_model_and_tiles_that_fit_are_named() -> None:
    tried = []

    def planned(job: Job, name: str, size: Any) -> Any:
        parameters = sum(parameter.numel() for parameter in job.model().parameters())
        tried.append((name, size))
        if parameters > 20e6 and size != 640:
            raise CannotFit("too large", "use another")

    model, pruned, tiles = _ways_out("yolov5l", 4096, planned)
    assert model == "yolov5s fits"
    assert pruned == "pruned to 26 % of its operations it fits (`oomph shrink prune --ops 0.26`)"
    assert tiles.startswith("tiles of 640 pixels fit, at full resolution (`tiles: 640` in the settings")
    assert tried == [
        ("yolov5m", 4096),
        ("yolov5s", 4096),
        ("pruned yolov5l", 4096),
        ("pruned yolov5l", 4096),
        ("yolov5l", 1280),
        ("yolov5l", 640),
    ]
    assert list(_ways_out("mobilenet", 416, planned)) == []
    assert list(_ways_out("mobilenet", 416, planned)) == []  # no YOLOv5 is a smaller mobilenet
    assert list(_ways_out("job.py:job", 4096, planned)) == []


def test_budget_below_what_cuda_takes(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", job, "--gpu", "H200", "--budget", "100MiB"]) == 3
    assert "CUDA alone takes 520 MiB, and the budget is 100 MiB" in capsys.readouterr().err


@pytest.mark.medium
def test_script_is_planned_with_its_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.json"
    command = ["plan", f"{SCRIPTS}/plannable.py", "--gpu", "H200", "--budget", "1150MiB", "--yes", "-o", str(out)]
    assert run([*command, "--json", "--", "--batch-size", "48"]) == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert captured.err == ""
    assert data["requested"]["batch"] == 48
    plan = oomph.Plan.load(out)
    assert data == plan.document()
    assert plan.steps[0] == "Set the environment variable PYTORCH_ALLOC_CONF=expandable_segments:True."
    assert f'plan = oomph.Plan.load("{out}")\nplan.apply(model, optimizer)' in plan.steps[1]


@pytest.mark.medium
def test_script_that_fits_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", f"{SCRIPTS}/own_batches.py", "--gpu", "RTX 3060", "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "Captured: model Gpt (0.5 M parameters), AdamW, batches of 8 from the script's own code, amp-bf16." in shown
    assert "Nothing has to change." in shown
    assert "To carry it out" not in shown


SMALL_JOB = JOB.replace("4096", "16").replace("256", "16")


@pytest.fixture
def small_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(_explorer, "_workers", lambda: 1)
    path = tmp_path / "small.py"
    path.write_text(SMALL_JOB)
    return f"{path}:job"


@pytest.mark.medium
def test_html_writes_the_explorer_beside_plan_and_json(
    small_job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, file = tmp_path / "plan.html", tmp_path / "plan.json"
    arguments = ["plan", small_job, "--batch", "4", "--gpu", "cpu", "--html", str(page), "-o", str(file), "--json"]
    assert run(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["settings"]["batch"] == 4
    assert oomph.Plan.load(file).settings.batch == 4
    text = page.read_text()
    assert "The plan for cpu" in text
    assert len(text) < 8e6


@pytest.mark.large
def test_html_is_written_by_workers_although_nothing_fits(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "plan.html"
    arguments = ["plan", job, "--batch", "64", "--gpu", "RTX 3060", "--budget", "200MiB", "--html", str(page)]
    assert run(arguments) == 3
    assert "plan.html' shows what needs how much" in " ".join(capsys.readouterr().err.split())
    assert "Nothing fits" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([str(SCRIPTS / "classifier.py"), "--yes"], "--html is for a Job, not for a script"),
        (["yolov5s", "--which-gpu"], "--html has no meaning"),
        (["yolov5s", "--gpu", "cpu", "--dataset", "a.py:b"], "--html has no --dataset"),
    ],
)
def test_html_is_rejected_where_it_has_no_meaning(
    arguments: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "plan.html"
    assert run(["plan", *arguments, "--html", str(page)]) == 2
    assert problem in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize("path", ["missing/plan.html", "."])
def test_a_page_that_cannot_be_written_is_reported_before_the_work(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "yolov5s", "--gpu", "cpu", "--html", str(tmp_path / path)]) == 2
    assert "can't be written; name a file in an existing folder." in " ".join(capsys.readouterr().err.split())
