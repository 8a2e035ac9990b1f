"""NVTX ranges; a stand-in takes the place of torch's NVTX functions, which need a CUDA build."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oomph.recovery import _guard
from oomph.recovery.profiling import nvtx_range
from oomph.recovery.profiling._nvtx import no_range

from ..faults import FaultIn
from ..nets import plain_batch, plain_guard

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class FakeNvtx:
    """Stands in for torch's NVTX functions: names of ranges, each with the depth it was opened at."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, str]] = []
        self.depth = 0

    def rangePushA(self, name: str) -> int:  # noqa: N802  torch's name
        self.ranges.append((self.depth, name))
        self.depth += 1
        return self.depth

    def rangePop(self) -> int:  # noqa: N802  torch's name
        self.depth -= 1
        return self.depth


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> FakeNvtx:
    """Let guards on the CPU mark their work as if they were on a GPU."""
    functions = FakeNvtx()
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", functions)
    monkeypatch.setattr(_guard, "nvtx_range", lambda *, enabled, **_: nvtx_range(enabled=enabled, device=CUDA))
    return functions


def test_steps_micro_batches_and_updates_are_marked(nvtx: FakeNvtx) -> None:
    guard = plain_guard(nvtx=True, micro_batch=4)
    guard.step(plain_batch())
    assert nvtx.ranges == [
        (0, "step 0"),
        (1, "attempt 1"),
        (2, "micro-batch 1: forward"),
        (2, "micro-batch 1: backward"),
        (2, "micro-batch 2: forward"),
        (2, "micro-batch 2: backward"),
        (1, "optimizer update"),
    ]
    assert nvtx.depth == 0


def test_retries_are_marked_and_ranges_end_after_errors(nvtx: FakeNvtx) -> None:
    guard = plain_guard(nvtx=True)
    with FaultIn("addmm", times=1):
        guard.step(plain_batch())
    names = [name for _, name in nvtx.ranges]
    assert [name for name in names if name.startswith("attempt")] == ["attempt 1", "attempt 2"]
    with FaultIn("addmm", times=100), pytest.raises(Exception, match="out of memory"):
        guard.step(plain_batch())
    assert nvtx.depth == 0


def test_both_passes_are_marked(nvtx: FakeNvtx) -> None:
    def spread(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).flatten().std()

    guard = plain_guard(loss=spread, nvtx=True, micro_batch=4)
    guard.step(plain_batch())
    assert [name for depth, name in nvtx.ranges if depth == 2] == [
        "micro-batch 1: forward without gradients",
        "micro-batch 2: forward without gradients",
        "loss of the batch",
        "micro-batch 1: forward and backward",
        "micro-batch 2: forward and backward",
    ]


def test_ranges_are_off_by_default(nvtx: FakeNvtx) -> None:
    plain_guard().step(plain_batch())
    assert nvtx.ranges == []
    with no_range("step {}", 1):
        pass


def test_cpu_has_nothing_to_mark(caplog: pytest.LogCaptureFixture) -> None:
    assert nvtx_range(enabled=True, device=CPU) is no_range
    assert "nvtx=True marks nothing" in caplog.text
    assert plain_guard(nvtx=True).step(plain_batch()).updated
