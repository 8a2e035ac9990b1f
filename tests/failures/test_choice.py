from __future__ import annotations

import itertools

import pytest

from oomph.failures import CAUSES, FailureKind, read_log
from oomph.failures._choice import MAX_ADVICE, choose_advice
from oomph.failures._situation import Situation, Speaker, System


@pytest.mark.parametrize("kind", CAUSES, ids=lambda kind: kind.value)
def test_every_failure_has_advice_for_every_speaker_and_system(kind: FailureKind) -> None:
    cause = CAUSES[kind]
    for speaker, system in itertools.product(Speaker, System):
        advice = choose_advice(cause, (), Situation(speaker, system), cause.resource, "message", None)
        assert 1 <= len(advice) <= MAX_ADVICE, (speaker, system)


def test_a_library_in_a_program_has_the_advice_of_the_program() -> None:
    error = "cv2.error: OpenCV(4.6.0) alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate 4915200 bytes"
    head = "train: weights=yolov5m.pt, data=parts.yaml, cache=ram\n"
    assert "cache" in read_log(head + error)[0].advice[0].text
    assert "Decode images" in read_log(error)[0].advice[0].text


def test_memory_that_is_taken_at_the_start_is_missing_because_others_hold_it() -> None:
    error = "cuda_driver.cc:1182] failed to allocate 17.71GiB (19016908800 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY"
    assert "nvidia-smi" in read_log(f"jaxlib\n{error}")[0].advice[0].command


def test_the_first_reductions_of_a_loss_scale_are_no_failure() -> None:
    text = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}"
    assert read_log(text.format("32768.0")) == ()
    assert [finding.kind for finding in read_log(text.format("0.25"))] == [FailureKind.SKIPPED_STEPS]


@pytest.mark.parametrize(
    "line",
    [
        '- loader: workers no longer exit with "Too many open files" for > 1000 shards (#2198, #2204)',
        "**Q: DataLoader worker is killed by signal: Bus error.** Start docker with `--shm-size 32g`.",
        "If the process is killed by the OOM killer, use `--no-cache`.",
        "  try 512: out of memory\n  try 256: out of memory\n  try 128: ok (peak 21.7 GiB)",
    ],
)
def test_texts_about_failures_are_none(line: str) -> None:
    assert read_log(line) == ()


TORCH_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 15.77 GiB "
    "of which 60.00 MiB is free. {} Of the allocated memory 200.00 MiB is allocated by PyTorch, and 20.00 MiB is "
    "reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    "process",
    [
        "Including non-PyTorch memory, this process has 15.70 GiB memory in use.",
        "Process 3402 has 15.70 GiB memory in use.",
    ],
)
def test_memory_of_the_process_that_torch_does_not_hold_comes_first(process: str) -> None:
    finding = read_log(TORCH_OOM.format(process))[0]
    assert "15.5 GiB of the GPU is used by this process, but not by torch." in finding.details
    assert "TensorFlow" in finding.advice[0].text
