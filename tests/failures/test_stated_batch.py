from __future__ import annotations

import pytest

from oomph.failures import read_log
from oomph.failures._common_advice import SMALLER_STEP
from oomph.failures._gpu_advice_by_speaker import GPU_ADVICE
from oomph.failures._kinds import Advice
from oomph.failures._situation import Speaker
from oomph.failures._stated_batch import StatedBatch, is_about_batches, read_batch, with_batch

CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("batch_size=16", 16),
        ("micro_batch_size: 4, sequence_len: 4096", 4),
        ('"train_micro_batch_size_per_gpu": 2,', 2),
        ("  Instantaneous batch size per device = 4\n  Total train batch size (w. parallel) = 64", 4),
        ("train_batch_size已经是1了", 1),
        ("Die batch_size habe ich schon auf 1 reduziert", 1),
        ("python train.py --batch 16 --img 640", 16),
        ("bs=32, lr=0.1", 32),
        ("batch=64 subdivisions=16", 4),
        ("with batch size 8 it works, but 16 fails with batch_size: 16", 16),
        ("per_device_eval_batch_size=8", None),
        ("batch 12/100 loss 0.3", None),
        ("yolo train data=a.yaml batch=-1", None),
        ("batch_size=args.batch num_workers=4", None),
        ("lower batch_size or num_workers=0", None),
        ("batch size, for example 8", None),
    ],
)
def test_the_batch_size_of_a_text(text: str, size: int | None) -> None:
    assert read_batch(text).size == size


def test_advice_has_half_of_the_stated_batch() -> None:
    yolo = GPU_ADVICE[Speaker.YOLOV5]
    assert "--batch-size 30 " in with_batch(yolo[0], StatedBatch(61)).command
    assert "--batch-size 61" in with_batch(yolo[1], StatedBatch(61)).command, "smaller images, with the same batch"
    trainer = with_batch(GPU_ADVICE[Speaker.HUGGINGFACE][0], StatedBatch(2, accumulation=4)).command
    assert trainer.startswith("per_device_train_batch_size=1, gradient_accumulation_steps=8,")
    assert with_batch(yolo[0], StatedBatch()) == yolo[0]


def test_advice_that_only_mentions_batches_is_not_about_them() -> None:
    assert is_about_batches(SMALLER_STEP)
    assert not is_about_batches(Advice("The optimizer's states don't fit, and smaller batches don't change them."))


@pytest.mark.parametrize("speaker", ["", "transformers.Trainer", "pytorch_lightning", "flax, jax", "sd-scripts"])
def test_a_batch_of_one_sample_can_not_become_smaller(speaker: str) -> None:
    advice = read_log(f"{speaker} batch_size=1\n{CUDA}")[0].advice
    assert advice
    assert not any(is_about_batches(piece) for piece in advice)


def test_subdivisions_of_darknet_are_doubled() -> None:
    error = "darknet: ./src/utils.c:331: error\nCUDA Error: out of memory"
    assert read_log(f"batch=64 subdivisions=32\n{error}")[0].advice[0].command == "subdivisions=64"
    assert "width=" in read_log(f"batch=64 subdivisions=64\n{error}")[0].advice[0].command
