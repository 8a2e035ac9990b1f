"""The decision about a retry, for the command lines of known programs and for placeholders."""

from __future__ import annotations

import io
import json
import os
import time
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from oomph.errors import UsageError
from oomph.failures import FailureKind, measured_finding
from oomph.supervisor.retry import BatchSettings, Decision, FailedRun, RetryPolicy, parse_template
from oomph.supervisor.retry._program import Restart

GPU, RAM = FailureKind.CUDA_OOM, FailureKind.OOM_KILL
# What tells train.py of YOLOv5 from that of others, and scripts that parse TrainingArguments.
YOLOV5_SCRIPT = "# YOLOv5 by Ultralytics\nopt = yaml.safe_load((last.parent.parent / 'opt.yaml').open())\n"
TRAINER_SCRIPT = "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"


def decide(words: str, kind: FailureKind = GPU, *, since: float = 0.0, retries: int = 0, output: str = "") -> Decision:
    policy = RetryPolicy(tuple(words.split()), max_retries=3)
    settings = policy.first_settings
    run = None if settings is None else FailedRun(policy.words, settings, since, output=output)
    return policy.decide(measured_finding(kind, "text", {}), run, retries)


def restart(words: str, kind: FailureKind = GPU, *, since: float = 0.0, output: str = "") -> Restart:
    decision = decide(words, kind, since=since, output=output)
    assert decision.restart is not None, decision.why_not
    return decision.restart


def next_words(words: str, kind: FailureKind = GPU, *, since: float = 0.0, output: str = "") -> str:
    return " ".join(restart(words, kind, since=since, output=output).words)


def write(path: Path, text: str, age: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("train.py", "yolov5/train.py"):
        write(Path(name), YOLOV5_SCRIPT)
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
        ("yolo train model=yolo11n.pt batch=12 nbs=24", "yolo train model=yolo11n.pt batch=6 nbs=24"),
        ("yolo detect train model=yolo11n.pt batch=6", "yolo detect train model=yolo11n.pt batch=3"),
        ("yolo mode=train model=yolo11n.pt", "yolo mode=train model=yolo11n.pt batch=8"),
        ("python /opt/bin/yolo train batch=4", "python /opt/bin/yolo train batch=2"),
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
            "python main.py fit --data.batch_size=64 --trainer.max_epochs 3",
            "python main.py fit --data.batch_size=32 --trainer.max_epochs 3 --trainer.accumulate_grad_batches 2",
        ),
    ],
)
def test_batches_are_halved(words: str, expected: str) -> None:
    assert next_words(words) == expected


def test_a_script_without_the_batch_flag_is_known_by_its_text(empty_folder: Path) -> None:
    words = "python run.py --output_dir out --num_train_epochs 3 --gradient_accumulation_steps 2"
    assert "doesn't know its flags" in decide(words).why_not
    write(empty_folder / "run.py", "parser.add_argument('--train_batch_size')  # as the examples of diffusers\n")
    assert "doesn't know its flags" in decide(words).why_not
    write(empty_folder / "run.py", TRAINER_SCRIPT)
    assert next_words(words).endswith("--gradient_accumulation_steps 4 --per_device_train_batch_size 4")


@pytest.mark.parametrize(
    "text",
    [
        "parser.add_argument('--bs')\n",
        YOLOV5_SCRIPT.replace("YOLOv5 by Ultralytics", "YOLOv9"),
        YOLOV5_SCRIPT + "opt.batch_size = opt.total_batch_size  # as YOLOv7\n",
        "# Starts YOLOv5, and watches it.\n",
    ],
)
def test_only_the_text_of_yolov5_is_yolov5(text: str) -> None:
    write(Path("train.py"), text)
    assert "doesn't know its flags" in decide("python train.py --data d --weights w --cfg c --hyp h --img 640").why_not


@pytest.mark.parametrize(
    ("words", "batch", "change"),
    [
        ("yolo train batch=64", 32, ""),
        ("yolo train batch=6", 3, "effective batch 63 (was 66)"),
        ("yolo train batch=24", 12, "effective batch 60 (was 72)"),
        ("yolo train batch=128", 64, "effective batch 64 (was 128)"),
        ("yolo train batch=48", 24, "effective batch 72 (was 48)"),
        ("yolo train batch=56 nbs=112", 28, ""),
        ("python x.py --per_device_train_batch_size 9", 3, ""),
    ],
)
def test_the_effective_batch_stays_or_its_change_is_told(words: str, batch: int, change: str) -> None:
    decision = decide(words)
    assert decision.settings is not None
    assert decision.settings.batch == batch
    assert ("effective" in decision.change) == bool(change)
    assert change in decision.change


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python train.py --data d.yaml --weights w.pt --workers 8", "--workers 4"),
        ("python train.py --data d.yaml --weights w.pt", "--workers 4"),
        ("yolo train batch=16 workers=2", "workers=1"),
        ("python x.py --per_device_train_batch_size 8 --dataloader_num_workers 3", "--dataloader_num_workers 1"),
        ("python x.py fit --data.batch_size 8 --data.num_workers 4", "--data.num_workers 2"),
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


OPTIONS = "batch_size: 64\nworkers: 8\nimgsz: 640\n"
YOLOV5 = "python train.py --data d.yaml --weights w.pt --batch 64"


def write_yolov5_run(name: str, age: float = 0.0, content: str = "weights") -> str:
    write(Path("runs/train", name, "opt.yaml"), OPTIONS)
    return str(write(Path("runs/train", name, "weights/last.pt"), content, age))


def test_yolov5_resumes_its_checkpoint_with_the_smaller_batch_in_its_options() -> None:
    write_yolov5_run("exp", age=1000)
    checkpoint = write_yolov5_run("exp2")
    start = time.time() - 100
    restarted = restart(YOLOV5, since=start)
    assert " ".join(restarted.words) == f"python train.py --data d.yaml --weights w.pt --batch 32 --resume {checkpoint}"
    assert Path("runs/train/exp2/opt.yaml").read_text() == OPTIONS, "a decision changes no file"
    assert restarted.edit is not None
    restarted.edit.write()
    assert Path("runs/train/exp2/opt.yaml").read_text() == OPTIONS.replace("batch_size: 64", "batch_size: 32")
    assert "opt.yaml was changed, too (batch_size and workers)" in str(restarted.edit)
    assert Path("runs/train/exp/opt.yaml").read_text() == OPTIONS
    assert "--resume" not in next_words(YOLOV5, since=start + 5000), "checkpoints of earlier runs are not those of this"


def test_the_checkpoint_of_another_run_is_never_taken() -> None:
    mine, other = write_yolov5_run("exp"), write_yolov5_run("exp2", age=-5)
    unknown = restart(YOLOV5)
    assert "--resume" not in unknown.words
    assert "Several runs have written checkpoints" in unknown.note
    for name, checkpoint in (("exp", mine), ("exp2", other)):
        output = f"Using 8 dataloader workers\r\nLogging results to \x1b[1mruns/train/{name}\x1b[0m\r\nStarting\r\n"
        assert restart(YOLOV5, output=output).words[-2:] == ("--resume", checkpoint)
    assert "--resume" not in next_words(YOLOV5, output="Logging results to runs/train/exp3\n"), "none was written yet"


def test_a_checkpoint_whose_writing_was_interrupted_is_not_taken() -> None:
    file = io.BytesIO()
    torch.save({"epoch": 3}, file)
    path = Path(write_yolov5_run("exp"))
    path.write_bytes(file.getvalue()[:-10])
    assert "--resume" not in next_words(YOLOV5)
    path.write_bytes(file.getvalue())
    assert "--resume" in next_words(YOLOV5)


def test_yolov5_that_resumes_has_the_batch_of_its_options() -> None:
    checkpoint = write_yolov5_run("exp", age=1000)
    words = f"python train.py --data d.yaml --weights w.pt --resume {checkpoint} --img 320"
    decision = decide(words, since=time.time())
    assert decision.change == "batch 32 (was 64)"
    assert decision.restart is not None
    assert decision.restart.checkpoint == checkpoint
    assert decision.restart.edit is not None
    assert decision.restart.edit.text == OPTIONS.replace("batch_size: 64", "batch_size: 32")
    assert "not on its command line" in decide("python train.py --data d --weights w --resume").why_not


def test_yolo_resumes_its_checkpoint() -> None:
    path = str(write(Path("runs/detect/train/weights/last.pt"), "weights"))
    assert next_words("yolo train model=yolo11n.pt batch=8") == f"yolo train model={path} batch=4 resume=True"
    elsewhere = write(Path("my runs/detect/train4/weights/last.pt"), "weights").absolute()
    output = f"Logging results to \x1b[1m{elsewhere.parent.parent}\x1b[0m\n"
    assert f"model={elsewhere}" in restart("yolo train model=a.pt", output=output).words


def test_yolo_that_resumes_has_the_batch_of_its_arguments() -> None:
    path = write(Path("runs/detect/train/weights/last.pt"), "weights", age=1000)
    words = f"yolo train resume model={path}"
    assert "not on its command line" in decide(words).why_not
    write(Path("runs/detect/train/args.yaml"), "task: detect\nbatch: 48\nnbs: 64\n")
    assert decide(words, since=time.time()).change == "batch 24 (was 48), effective batch 72 (was 48)"
    assert next_words(words, since=time.time()) == f"{words} batch=24"
    assert decide(f"{words} batch=8").change == "batch 4 (was 8)"


def test_transformers_resumes_a_complete_checkpoint() -> None:
    write(Path("out/checkpoint-500/trainer_state.json"), "{}")
    write(Path("out/checkpoint-1000/optimizer.pt"), "")
    changed = next_words("python x.py --output_dir out --per_device_train_batch_size 8")
    assert changed.endswith("--resume_from_checkpoint out/checkpoint-500")


def test_the_batch_in_a_checkpoint_of_transformers_changes_with_the_argument() -> None:
    """Two GPUs of one process share the saved batch."""
    state = write(Path("out/checkpoint-5/trainer_state.json"), '{"train_batch_size": 16, "global_step": 5}')
    edit = restart("python x.py --output_dir out --per_device_train_batch_size 8").edit
    assert json.loads(state.read_text())["train_batch_size"] == 16, "a decision changes no file"
    assert edit is not None
    edit.write()
    assert json.loads(state.read_text()) == {"train_batch_size": 8, "global_step": 5}
    assert "train_batch_size" in str(edit)


def test_a_checkpoint_of_another_run_that_has_the_batch_is_not_continued_with_a_smaller_one() -> None:
    """Transformers 4 would use the batch of the checkpoint, with the accumulation of the smaller one."""
    state = write(Path("old/checkpoint-2/trainer_state.json"), '{"train_batch_size": 8, "global_step": 2}', age=1000)
    words = "python x.py --output_dir out --per_device_train_batch_size 8 --dataloader_num_workers 2"
    resumed = f"{words} --resume_from_checkpoint old/checkpoint-2"
    assert "it resumes old/checkpoint-2 of another run" in decide(resumed, since=time.time()).why_not
    output = "Checkpoint detected, resuming training at old/checkpoint-2. To avoid this behavior, change"
    assert "it resumes old/checkpoint-2" in decide(words, since=time.time(), output=output).why_not
    policy = RetryPolicy(tuple(resumed.split()))
    assert policy.first_settings is not None
    assert policy.suggest(FailedRun(policy.words, policy.first_settings, time.time())) is None
    assert restart(resumed, RAM, since=time.time()).checkpoint == "old/checkpoint-2", "fewer workers, the same batch"
    write(Path("out/checkpoint-4/trainer_state.json"), '{"train_batch_size": 8}')
    own = restart(resumed, since=time.time() - 10)
    assert own.checkpoint == "out/checkpoint-4"
    assert own.edit is not None
    assert own.edit.path == Path("out/checkpoint-4/trainer_state.json")
    six = resumed.replace("size 8", "size 6")
    assert "has a train_batch_size of 8, and the command one of 6" in decide(six, since=time.time() - 10).why_not
    assert json.loads(state.read_text())["train_batch_size"] == 8
    write(Path("old/checkpoint-2/trainer_state.json"), '{"global_step": 2}', age=1000)
    assert restart(resumed, since=time.time() + 10).checkpoint == "old/checkpoint-2", "it has no batch"


LIGHTNING = "python x.py fit --data.batch_size 8"


def write_lightning_run(name: str, batch: int = 8, accumulate: int = 1, seed: str = "true", age: float = 0.0) -> Path:
    """Write the config.yaml that Lightning's CLI writes when a run begins; return the folder of its checkpoints."""
    trainer = f"trainer:\n  accelerator: auto\n  accumulate_grad_batches: {accumulate}\n"
    text = f"# lightning.pytorch==2.6.6\nseed_everything: {seed}\n{trainer}data:\n  batch_size: {batch}\n"
    write(Path("lightning_logs", name, "config.yaml"), text, age)
    return Path("lightning_logs", name, "checkpoints")


def save_lightning(path: Path, *, done: bool, is_last_batch: bool = True, age: float = 0.0) -> Path:
    """Save a checkpoint of the second epoch, as Lightning does."""
    counts = {"ready": 2, "completed": 1, "started": 2, "processed": 2 if done else 1}
    loop = {"epoch_progress": {"current": counts}, "epoch_loop.batch_progress": {"is_last_batch": is_last_batch}}
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = OrderedDict(w=torch.zeros(3))
    content = {"epoch": 1, "loops": {"fit_loop": loop}, "state_dict": weights, "folder": Path("x"), "type": OSError}
    torch.save(content, path)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_lightning_resumes_its_newest_checkpoint() -> None:
    folder = write_lightning_run("version_0")
    old, new = (write(folder / f"epoch={n}.ckpt", "weights", age=10 - n) for n in range(2))
    assert next_words(LIGHTNING).endswith(f"--ckpt_path {new}")
    new.unlink()
    assert next_words(LIGHTNING).endswith(f"--ckpt_path {old}")


def test_lightning_takes_no_checkpoint_of_another_job() -> None:
    start = time.time() - 100
    folder = write_lightning_run("version_0")
    mine = str(write(folder / "epoch=0.ckpt", "weights"))
    for other in (
        write_lightning_run("version_1", age=1000),  # it began before
        write_lightning_run("version_2", batch=16),
        write_lightning_run("version_3", accumulate=2),
        Path("elsewhere/checkpoints"),
    ):
        write(other / "epoch=5.ckpt", "weights", age=-1)
    assert restart(LIGHTNING, since=start).checkpoint == mine
    write_lightning_run("version_4")
    unknown = restart(LIGHTNING, since=start)
    assert "--ckpt_path" not in unknown.words
    assert "none is taken" in unknown.note
    output = f"Epoch 0, global step 9: 'loss' reached 0.1, saving model to '{Path(mine).absolute()}' as top 1\n"
    assert restart(LIGHTNING, since=start, output=output).checkpoint == str(Path(mine).absolute())
    write_lightning_run("version_0", seed="1")
    write_lightning_run("version_4", seed="2")
    assert restart(f"{LIGHTNING} --seed_everything 1", since=start).checkpoint == mine


def test_lightning_dies_before_its_first_checkpoint_while_another_job_writes_one() -> None:
    write(Path("lightning_logs/version_9/checkpoints/epoch=5.ckpt"), "weights")
    assert "--ckpt_path" not in next_words(LIGHTNING)
    write_lightning_run("version_10")
    assert "--ckpt_path" not in next_words(LIGHTNING)


def test_lightning_continues_at_the_end_of_an_epoch() -> None:
    """A checkpoint within an epoch counts batches, and smaller ones would be more updates."""
    folder = write_lightning_run("version_0")
    end = save_lightning(folder / "epoch=0.ckpt", done=True, age=10)
    within = save_lightning(folder / "step=5.ckpt", done=False, is_last_batch=False)
    last_batch = save_lightning(folder / "step=20.ckpt", done=False, age=5)
    resumed = save_lightning(folder / "step=25.ckpt", done=True, is_last_batch=False, age=5)
    assert restart(LIGHTNING).checkpoint == str(end)
    assert restart(f"{LIGHTNING} --data.num_workers 4", RAM).checkpoint == str(within), "the batch stays"
    end.unlink()
    beginning = restart(LIGHTNING)
    assert "--ckpt_path" not in beginning.words
    assert "within an epoch" in beginning.note
    for path in (within, last_batch, resumed):
        resumes = f"{LIGHTNING} --ckpt_path {path}"
        assert "within an epoch" in decide(resumes, since=time.time() + 100).why_not


def test_without_a_new_checkpoint_a_run_continues_the_one_before() -> None:
    policy = RetryPolicy(("python", "x.py", "fit", "--data.batch_size", "8"), max_retries=3)
    first = str(write(write_lightning_run("version_0", age=100) / "epoch=0.ckpt", "weights", age=100))
    run = FailedRun(policy.words, BatchSettings(4, 2), time.time() - 50, first)
    finding = measured_finding(GPU, "text", {})
    assert policy.decide(finding, run, 1).restart == Restart(
        (*policy.words[:-1], "2", "--trainer.accumulate_grad_batches", "4", "--ckpt_path", first), first
    )
    second = str(write(write_lightning_run("version_1", 4, 2) / "epoch=1.ckpt", "weights"))
    restart = policy.decide(finding, run, 1).restart
    assert restart is not None
    assert restart.checkpoint == second, "each start of Lightning has a folder of its own"


def test_where_a_run_continues_reads_well() -> None:
    template = parse_template(("x", "{batch}", "{resume}"), 8, "--resume last.pt")
    assert template is not None
    write(Path("last.pt"), "weights")
    restarted = template.restart(FailedRun(("x", "{batch}", "{resume}"), BatchSettings(8)), BatchSettings(4))
    assert (restarted.words, restarted.origin) == (("x", "4", "--resume", "last.pt"), "and --resume last.pt")
    assert Restart(("x",), "last.pt").origin == "from last.pt"
    assert Restart(("x",)).origin == "from the beginning"


def test_a_checkpoint_that_lightning_was_given_stays_until_there_is_a_newer_one() -> None:
    words = "python x.py fit --data.batch_size 8 --ckpt_path base.ckpt"
    assert next_words(words) == (
        "python x.py fit --data.batch_size 4 --ckpt_path base.ckpt --trainer.accumulate_grad_batches 2"
    )
    assert restart(words).checkpoint == "base.ckpt"
    policy = RetryPolicy(tuple(words.split()), max_retries=3)
    again = policy.decide(
        measured_finding(GPU, "", {}), FailedRun(policy.words, BatchSettings(4, 2), checkpoint="base.ckpt"), 1
    )
    assert again.restart is not None
    assert (again.restart.checkpoint, again.restart.note) == ("base.ckpt", "")


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
    decision = decide("yolo train batch=16", kind)
    assert decision.restart is None
    assert decision.why_not


def test_the_smaller_command_is_suggested() -> None:
    words = ("python", "tune.py", "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2")
    policy = RetryPolicy(words)
    settings = policy.first_settings
    assert settings is not None
    suggestion = policy.suggest(FailedRun(words, settings))
    assert suggestion is not None
    assert suggestion.words[3::2] == ("4", "4")
    smallest = RetryPolicy(("yolo", "train", "batch=1"))
    assert smallest.first_settings is not None
    suggestion = smallest.suggest(FailedRun(smallest.words, smallest.first_settings))
    assert suggestion is not None
    assert not suggestion.words
    assert RetryPolicy(("python", "mine.py")).suggest(None) is None


def test_advice_needs_no_other_file_and_changes_none() -> None:
    """Whoever follows it starts with the smaller batch, which a checkpoint would not have."""
    checkpoint = write_yolov5_run("exp")
    state = write(Path("out/checkpoint-5/trainer_state.json"), '{"train_batch_size": 8}')
    trainer = "python x.py --output_dir out --per_device_train_batch_size"
    for words, expected in (
        (YOLOV5, "python train.py --data d.yaml --weights w.pt --batch 32"),
        (f"python train.py --resume {checkpoint}", None),
        (f"{trainer} 8", f"{trainer} 4 --gradient_accumulation_steps 2"),
    ):
        policy = RetryPolicy(tuple(words.split()))
        assert policy.first_settings is not None
        suggestion = policy.suggest(FailedRun(policy.words, policy.first_settings))
        assert (None if suggestion is None else " ".join(suggestion.words)) == expected
    assert Path("runs/train/exp/opt.yaml").read_text() == OPTIONS
    assert state.read_text() == '{"train_batch_size": 8}'


def test_a_failure_that_was_survived_is_not_retried() -> None:
    policy = RetryPolicy(("yolo", "train"), max_retries=3)
    assert policy.first_settings is not None
    survived = replace(measured_finding(GPU, "text", {}), was_survived=True)
    assert policy.decide(survived, FailedRun(policy.words, policy.first_settings), 0) == Decision()


def test_placeholders_are_replaced() -> None:
    write(Path("my last.pt"), "weights")
    words = ("train", "--b={batch}", "--acc", "{accumulate}", "{resume}", '{"json": 1}')
    template = parse_template(words, 64, "--resume 'my last.pt'")
    policy = RetryPolicy(words, template, 3)
    assert policy.first_words == ("train", "--b=64", "--acc", "1", '{"json": 1}')
    settings = policy.first_settings
    for batch in (32, 16):
        assert settings is not None
        decision = policy.decide(measured_finding(GPU, "", {}), FailedRun(words, settings), 0)
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


@pytest.mark.parametrize(
    ("resume", "missing"),
    [
        ("--resume last.pt", "last.pt"),
        ("--resume=out/last", "out/last"),
        ("ckpt=missing.ckpt", "missing.ckpt"),
        ("--resume there.pt", ""),
        ("--resume=epoch=1.ckpt", ""),
        ("epoch=1.ckpt", ""),
        ("--resume True --lr 0.5 --from latest", ""),
        ("--resume s3://bucket/last.pt", ""),
    ],
)
def test_resume_is_empty_until_its_file_exists(resume: str, missing: str) -> None:
    """An error in the first step comes before any checkpoint."""
    for name in ("there.pt", "epoch=1.ckpt"):
        write(Path(name), "weights")
    words = ("x", "{batch}", "{resume}")
    template = parse_template(words, 8, resume)
    assert template is not None
    restarted = template.restart(FailedRun(words, BatchSettings(8)), BatchSettings(4))
    assert restarted.words == ("x", "4", *(() if missing else resume.split()))
    assert restarted.note == (f"There is no {missing} yet, so {{resume}} is empty." if missing else "")
    assert restarted.origin == ("from the beginning" if missing else f"and {resume}")


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
