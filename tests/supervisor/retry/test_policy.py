"""The decision about a retry, for the command lines of known programs and for placeholders."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from oomph.errors import UsageError
from oomph.failures import FailureKind, measured_finding
from oomph.supervisor.retry import BatchSettings, Decision, RetryPolicy, parse_template

GPU, RAM = FailureKind.CUDA_OOM, FailureKind.OOM_KILL


def decide(words: str, kind: FailureKind = GPU, *, since: float = 0.0, retries: int = 0) -> Decision:
    policy = RetryPolicy(tuple(words.split()), max_retries=3)
    return policy.decide(measured_finding(kind, "text", {}), policy.first_settings, retries, since)


def next_words(words: str, kind: FailureKind = GPU, *, since: float = 0.0) -> str:
    decision = decide(words, kind, since=since)
    assert decision.restart is not None, decision.why_not
    return " ".join(decision.restart.words)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "python train.py --data coco.yaml --weights yolov5s.pt --batch-size 64",
            "python train.py --data coco.yaml --weights yolov5s.pt --batch-size 32",
        ),
        (
            "python yolov5/train.py --data coco.yaml --cfg yolov5n.yaml",
            "python yolov5/train.py --data coco.yaml --cfg yolov5n.yaml --batch-size 8",
        ),
        (
            "torchrun --nproc_per_node 3 train.py --data d.yaml --weights '' --batch 18",
            "torchrun --nproc_per_node 3 train.py --data d.yaml --weights '' --batch 9",
        ),
        ("yolo detect train model=yolo11n.pt batch=6", "yolo detect train model=yolo11n.pt batch=3"),
        ("yolo mode=train model=yolo11n.pt", "yolo mode=train model=yolo11n.pt batch=8"),
        (
            "python run_glue.py --per_device_train_batch_size 32 --gradient_accumulation_steps 2",
            "python run_glue.py --per_device_train_batch_size 16 --gradient_accumulation_steps 4",
        ),
        (
            "accelerate launch run_clm.py --per_device_train_batch_size=6",
            "accelerate launch run_clm.py --per_device_train_batch_size=3 --gradient_accumulation_steps 2",
        ),
        (
            "python run_clm.py --per_device_train_batch_size 5",
            "python run_clm.py --per_device_train_batch_size 1 --gradient_accumulation_steps 5",
        ),
        (
            "python run.py --output_dir out --num_train_epochs 3",
            (
                "python run.py --output_dir out --num_train_epochs 3 --per_device_train_batch_size 4 "
                "--gradient_accumulation_steps 2"
            ),
        ),
        (
            "python main.py fit --data.batch_size=64 --trainer.max_epochs 3",
            (
                "python main.py fit --data.batch_size=32 --trainer.max_epochs 3 --trainer.accumulate_grad_batches 2 "
                "--ckpt_path last"
            ),
        ),
    ],
)
def test_batches_are_halved_and_the_effective_batch_stays(words: str, expected: str) -> None:
    assert next_words(words) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python train.py --data d.yaml --weights w.pt --workers 8", "--workers 4"),
        ("python train.py --data d.yaml --weights w.pt", "--workers 4"),
        ("yolo train batch=16 workers=2", "workers=1"),
        ("python x.py --per_device_train_batch_size 8 --dataloader_num_workers 3", "--dataloader_num_workers 1"),
        ("python x.py fit --data.batch_size 8 --data.num_workers 4", "--data.num_workers 2 --ckpt_path last"),
    ],
)
def test_fewer_workers_if_ram_ran_out(words: str, expected: str) -> None:
    changed = next_words(words, RAM)
    assert changed.endswith(expected)
    for kind in (FailureKind.HOST_BUDGET, FailureKind.HOST_FULL, FailureKind.WORKER_KILLED):
        assert next_words(words, kind) == changed


def test_a_smaller_batch_if_ram_ran_out_without_workers() -> None:
    words = "python train.py --data d.yaml --weights w.pt --workers 0 --batch 4"
    assert next_words(words, RAM).endswith("--workers 0 --batch 2")


def test_yolov5_resumes_its_newest_checkpoint_with_the_smaller_batch_in_its_options(tmp_path: Path) -> None:
    start = time.time()
    for number, name in enumerate(("exp", "exp2", "exp3")):
        last = tmp_path / "runs/train" / name / "weights/last.pt"
        last.parent.mkdir(parents=True)
        last.write_bytes(b"")
        os.utime(last, (start - 1000 + number * 1000, start - 1000 + number * 1000))
        (last.parent.parent / "opt.yaml").write_text("batch_size: 64\nworkers: 8\nimgsz: 640\n")
    words = "python train.py --data d.yaml --weights w.pt --batch 64"
    assert next_words(words, since=start) == (
        "python train.py --data d.yaml --weights w.pt --batch 32 --resume runs/train/exp3/weights/last.pt"
    )
    assert (tmp_path / "runs/train/exp3/opt.yaml").read_text() == "batch_size: 32\nworkers: 8\nimgsz: 640\n"
    assert "batch_size: 64" in (tmp_path / "runs/train/exp2/opt.yaml").read_text()
    assert next_words(f"{words} --resume --img 320", since=start).endswith(
        "--batch 32 --resume runs/train/exp3/weights/last.pt --img 320"
    )
    assert "--resume" not in next_words(words, since=start + 5000), "checkpoints of earlier runs are not those of this"


def test_yolo_resumes_its_checkpoint(tmp_path: Path) -> None:
    last = tmp_path / "runs/detect/train/weights/last.pt"
    last.parent.mkdir(parents=True)
    last.write_bytes(b"")
    path = "runs/detect/train/weights/last.pt"
    assert next_words("yolo train model=yolo11n.pt batch=8") == f"yolo train model={path} batch=4 resume=True"
    assert next_words("yolo train resume model=a.pt") == f"yolo train model={path} batch=8 resume=True"


def test_transformers_resumes_a_complete_checkpoint(tmp_path: Path) -> None:
    for step, is_complete in ((500, True), (1000, False)):
        folder = tmp_path / f"out/checkpoint-{step}"
        folder.mkdir(parents=True)
        if is_complete:
            (folder / "trainer_state.json").write_text("{}")
    changed = next_words("python x.py --output_dir out --per_device_train_batch_size 8")
    assert changed.endswith("--resume_from_checkpoint out/checkpoint-500")


def test_lightning_resumes_its_newest_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "lightning_logs/version_0/checkpoints/epoch=1.ckpt"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    changed = next_words("python x.py fit --data.batch_size 8")
    assert changed.endswith(f"--ckpt_path {file.relative_to(tmp_path)}")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("python my_script.py --bs 64", "doesn't know its flags"),
        ("bash train.sh", "doesn't know its flags"),
        ("python train.py --data d.yaml --weights w.pt --batch -1", "not on its command line"),
        ("yolo train batch=0.7", "not on its command line"),
        ("python main.py fit --config c.yaml", "not on its command line"),
        ("python x.py --per_device_train_batch_size 1", "can't be made smaller"),
        ("torchrun --nproc_per_node 4 train.py --data d --weights w --batch 4", "can't be made smaller"),
        ("torchrun --nnodes 2 x.py --per_device_train_batch_size 8", "several machines"),
    ],
)
def test_what_can_not_be_retried_is_told(words: str, reason: str) -> None:
    decision = decide(words)
    assert decision.restart is None
    assert reason in decision.why_not


def test_a_rank_is_not_started_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "one rank" in decide("python x.py --per_device_train_batch_size 8").why_not


def test_retries_are_counted() -> None:
    assert "3 retries" in decide("yolo train", retries=3).why_not


@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.PYTHON_ERROR,
        FailureKind.SHAPE,
        FailureKind.KILLED,
        FailureKind.HANG,
        FailureKind.STOPPED,
        FailureKind.CRASH,
        FailureKind.LIBRARY_ERROR,
        FailureKind.WORKER_EXITED,
        FailureKind.RANK_TIMEOUT,
        FailureKind.NON_FINITE_LOSS,
        FailureKind.DISK_FULL,
    ],
)
def test_other_failures_are_not_retried(kind: FailureKind) -> None:
    assert decide("yolo train batch=16", kind) == Decision()


def test_placeholders_are_replaced() -> None:
    words = ("train", "--b={batch}", "--acc", "{accumulate}", "{resume}", '{"json": 1}')
    template = parse_template(words, 64, "--resume 'my last.pt'")
    policy = RetryPolicy(words, template, 3)
    assert policy.first_words == ("train", "--b=64", "--acc", "1", '{"json": 1}')
    settings = policy.first_settings
    for batch in (32, 16):
        decision = policy.decide(measured_finding(GPU, "", {}), settings, 0, 0.0)
        settings = decision.settings
        assert decision.restart is not None
        assert decision.restart.words == (
            "train",
            f"--b={batch}",
            "--acc",
            str(64 // batch),
            "--resume",
            "my last.pt",
            '{"json": 1}',
        )


def test_placeholders_and_options_must_match() -> None:
    assert parse_template(("echo", "{batch}"), None, None) is None
    for words, batch, resume in (
        (("echo",), 8, None),
        (("echo", "{batch}", "{resume}"), 8, None),
        (("echo", "{batch}"), 8, "--resume"),
        (("echo", "{batch}", "{resume}"), 8, "'open"),
        (("echo", "{resume}"), None, "--resume"),
    ):
        with pytest.raises(UsageError):
            parse_template(words, batch, resume)


def test_settings_are_described_by_what_changes() -> None:
    before = BatchSettings(64, 1, 8)
    after = before.with_smaller_batch()
    assert after == BatchSettings(32, 2, 8)
    assert after is not None
    assert after.describe(before) == "batch 32 (was 64), accumulation 2 (was 1)"
    assert BatchSettings(1).with_smaller_batch() is None
    assert BatchSettings(4, workers=0).with_fewer_workers() is None
