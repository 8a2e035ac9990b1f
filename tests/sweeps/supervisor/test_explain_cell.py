from __future__ import annotations

import signal
from pathlib import Path

import pytest

from oomph.sweeps import LOG_FILE, CellOutcome, Limit, Limits, Status, explain_cell
from oomph.units import GIB

CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.63 GiB"
TRACE = "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'lr'\n"


@pytest.mark.parametrize(
    ("outcome", "log", "status", "why"),
    [
        (CellOutcome(exit_code=0), "CUDA out of memory, then it went on", Status.DONE, ""),
        (CellOutcome(exit_code=1), f"epoch 1\n{CUDA}\n", Status.OUT_OF_MEMORY, "CUDA out of memory"),
        (CellOutcome(exit_code=1), "Traceback (most recent call last):\nMemoryError\n", Status.OUT_OF_MEMORY, "Memory"),
        (CellOutcome(exit_code=1), "OSError: [Errno 12] Cannot allocate memory\n", Status.OUT_OF_MEMORY, "Errno 12"),
        (CellOutcome(exit_code=1), TRACE, Status.FAILED, "KeyError: 'lr' (exit code 1)"),
        (CellOutcome(exit_code=2), "usage: x\nx: error: bad flag\n\n", Status.FAILED, "bad flag (exit code 2)"),
        (CellOutcome(exit_code=3), "", Status.FAILED, "it ended with exit code 3 and printed nothing"),
        (CellOutcome(start_error="FileNotFoundError: x"), "", Status.FAILED, "can't be started (FileNotFoundError: x)"),
        (CellOutcome(signal=signal.SIGKILL), "epoch 1", Status.KILLED, "by SIGKILL: the kernel's out-of-memory killer"),
        (CellOutcome(exit_code=137), "epoch 1", Status.KILLED, "by SIGKILL"),
        (CellOutcome(signal=signal.SIGSEGV), "epoch 1", Status.KILLED, "by SIGSEGV: it crashed"),
        (CellOutcome(signal=signal.SIGTERM), "", Status.KILLED, "by SIGTERM: another process ended it"),
        (CellOutcome(signal=63), "", Status.KILLED, "by signal 63"),
        (CellOutcome(signal=9, exceeded=Limit.TIME), CUDA, Status.TIMED_OUT, "it ran longer than 2 min"),
        (
            CellOutcome(signal=9, exceeded=Limit.HOST, host_peak=5 * GIB),
            "",
            Status.OUT_OF_MEMORY,
            "it used 5 GiB of RAM, and the budget is 4 GiB",
        ),
        (
            CellOutcome(signal=9, exceeded=Limit.GPU, gpu_peak=9 * GIB),
            "",
            Status.OUT_OF_MEMORY,
            "it used 9 GiB of GPU memory, and the budget is 8 GiB",
        ),
    ],
)
def test_every_end_has_a_status_a_reason_and_a_fix(
    tmp_path: Path, outcome: CellOutcome, log: str, status: Status, why: str
) -> None:
    (tmp_path / LOG_FILE).write_text(log)
    explanation = explain_cell(tmp_path, outcome, Limits(120, 4 * GIB, 8 * GIB))
    assert explanation.status is status
    assert why in explanation.why
    assert bool(explanation.fix) == (status is not Status.DONE)


def test_a_cell_whose_supervisor_was_killed_needs_no_log(tmp_path: Path) -> None:
    assert explain_cell(tmp_path, CellOutcome(signal=9), Limits()).status is Status.KILLED
