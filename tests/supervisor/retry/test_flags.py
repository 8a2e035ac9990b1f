from __future__ import annotations

import pytest

from oomph.supervisor.retry._flags import Flag, arguments_start, has_flag, launcher_flag, ranks_per_node, script

BATCH = Flag(("--batch-size", "--batch"))


@pytest.mark.parametrize(
    ("words", "value", "changed"),
    [
        ("python train.py --batch-size 64 --img 640", "64", "python train.py --batch-size 8 --img 640"),
        ("python train.py --batch-size=64", "64", "python train.py --batch-size=8"),
        ("python train.py --batch 64", "64", "python train.py --batch 8"),
        ("python train.py --batch 16 --batch 64", "64", "python train.py --batch 16 --batch 8"),
        ("python train.py --img 640", None, "python train.py --img 640 --batch-size 8"),
        ("python train.py --batch", None, "python train.py --batch --batch-size 8"),
        ("torchrun --batch 2 train.py --batch 64", "64", "torchrun --batch 2 train.py --batch 8"),
    ],
)
def test_flags_are_read_and_changed_in_their_form(words: str, value: str | None, changed: str) -> None:
    assert BATCH.read(words.split()) == value
    assert BATCH.write(words.split(), 8) == tuple(changed.split())


def test_flags_without_dashes_have_one_form() -> None:
    batch = Flag(("batch",))
    assert batch.read(["yolo", "train", "batch=16"]) == "16"
    assert batch.read(["yolo", "train", "batch", "16"]) is None
    assert batch.write(["yolo", "train"], 4) == ("yolo", "train", "batch=4")


def test_only_whole_numbers_are_numbers() -> None:
    for text, number in (("64", 64), ("-1", -1), ("0.7", None), ("auto", None)):
        assert BATCH.read_number(["python", "train.py", "--batch", text], 16) == number
    assert BATCH.read_number(["python", "train.py"], 16) == 16


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("python train.py --x 1", "train.py"),
        ("env A=1 nice python -u yolov5/train.py", "yolov5/train.py"),
        ("python -m torch.distributed.run --nproc_per_node 2 train.py --x", "train.py"),
        ("torchrun --nproc-per-node=4 -m package.train --x 1", "package.train"),
        ("yolo train batch=16", "yolo"),
    ],
)
def test_the_program_is_found_behind_launchers(words: str, program: str) -> None:
    assert script(words.split()) == program
    assert words.split()[arguments_start(words.split()) - 1] == program


def test_flags_of_the_launcher_are_not_those_of_the_program() -> None:
    words = ["torchrun", "--nproc_per_node", "4", "--nnodes=2", "train.py", "--nnodes", "7", "--data", "x"]
    assert launcher_flag(words, "--nnodes") == "2"
    assert ranks_per_node(words) == 4
    assert ranks_per_node(["torchrun", "--nproc-per-node", "gpu", "train.py"]) == 1
    assert not has_flag(words, "--nproc_per_node")
    assert has_flag(words, "--data")
