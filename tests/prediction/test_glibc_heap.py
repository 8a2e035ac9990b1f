"""The replay of glibc's heap: its invariants, and a comparison with a real process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oomph
from oomph.prediction import _glibc_heap
from oomph.prediction._glibc_heap import Heap
from oomph.units import KIB, MIB

SIZES = st.lists(st.tuples(st.integers(64, 8 * MIB), st.booleans()), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(SIZES)
def test_resident_memory_covers_the_memory_in_use(requests: list[tuple[int, bool]]) -> None:
    heap, live = Heap(), {}
    for key, (size, keep) in enumerate(requests):
        heap.malloc(key, size)
        live[key] = size
        assert heap.resident >= sum(live.values())
        if not keep:
            heap.free(key)
            del live[key]
    assert heap.peak >= heap.resident


@settings(max_examples=30, deadline=None)
@given(SIZES)
@example([(size, False) for size in (64, 64, 64, 133353, 86553, 103865, 27769)])
def test_freed_memory_returns_to_the_kernel_if_no_gap_is_occupied(requests: list[tuple[int, bool]]) -> None:
    heap = Heap()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_glibc_heap, "_OCCUPIED_GAP_INTERVAL", 1 << 30)
        for key, (size, _) in enumerate(requests):
            heap.malloc(key, size)
    for key in reversed(range(len(requests))):
        heap.free(key)
    assert heap.mapped == 0
    assert heap.resident <= heap.trim_threshold + 256 * KIB + 128 * len(requests)


def test_large_blocks_are_mapped_separately_until_the_first_is_freed() -> None:
    heap = Heap()
    heap.malloc(1, 10 * MIB)
    assert heap.mapped > 10 * MIB
    heap.free(1)
    assert heap.mapped == 0
    heap.malloc(2, 9 * MIB)
    assert heap.mapped == 0  # the threshold has risen: the block is in the heap
    heap.malloc(3, 40 * MIB)
    assert heap.mapped > 40 * MIB  # above the largest threshold


MEASURE = """
import json, sys
import psutil, torch
torch.set_num_threads(1)
from torch import nn
nn.Linear(2, 2); torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
base = psutil.Process().memory_info().rss
sys.path.insert(0, sys.argv[1])
from test_glibc_heap import job
model = job.model(); optimizer = job.optimizer(model)
for _ in range(3):
    batch = job.batch(int(sys.argv[2]), 0)
    loss = job.run(model, batch)
    loss.backward(); del batch, loss
    optimizer.step(); optimizer.zero_grad(set_to_none=True)
peak = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")][0]
print(json.dumps(peak - base))
"""


def _model() -> object:
    from torch import nn

    return nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())))


def _batch(count: int, _: object) -> object:
    import torch

    return torch.randn(count, 256), torch.randn(count, 256)


def _loss(outputs: object, targets: object) -> object:
    return (outputs - targets).square().mean()  # type: ignore[operator]


def _optimizer(model: object) -> object:
    import torch

    return torch.optim.AdamW(model.parameters())  # type: ignore[attr-defined]


job = oomph.Job(model=_model, batch=_batch, loss=_loss, optimizer=_optimizer)  # type: ignore[arg-type]


@pytest.mark.large
@pytest.mark.skipif(sys.platform != "linux", reason="reads RSS from /proc")
def test_rss_growth_of_cpu_training_matches_the_prediction() -> None:
    predicted = oomph.predict(job, oomph.Settings(batch=49152), "cpu")
    command = [sys.executable, "-c", MEASURE, str(__file__).rpartition("/")[0], "49152"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    assert measured > 512 * MIB
    assert predicted.allocated.value == pytest.approx(measured, rel=0.1)
    assert predicted.allocated.low <= measured <= predicted.allocated.high
    assert predicted.host.value > predicted.allocated.value
