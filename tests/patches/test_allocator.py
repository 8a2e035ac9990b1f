"""The cap of torch's allocator, below a budget and below the point where a driver spills into RAM."""

from __future__ import annotations

import logging
import platform

import pytest
import torch

from oomph.machine import OUTSIDE
from oomph.patches import _allocator, allocator_limit, cap_allocator, cap_allocator_below_spill
from oomph.patches._allocator import bytes_outside_allocator, spill_fraction
from oomph.units import GIB, MIB

WSL = "5.15.153.1-microsoft-standard-WSL2"
GPU = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("system", "release"), [("Windows", "11"), ("Linux", WSL), ("Linux", WSL.replace("m", "M", 1))]
)
def test_torch_stays_a_little_below_the_free_memory_if_the_driver_spills(system: str, release: str) -> None:
    fraction = spill_fraction(system, release, total=24 * GIB, available=20 * GIB)
    assert fraction is not None
    margin = 20 * GIB - fraction * 24 * GIB
    assert 256 * MIB <= margin < GIB


def test_a_full_gpu_leaves_nothing() -> None:
    assert spill_fraction("Windows", "11", total=8 * GIB, available=100 * MIB) == 0


@pytest.mark.parametrize("release", ["6.8.0-45-generic", "5.14.0-427.el9.x86_64"])
def test_a_driver_on_linux_does_not_spill(release: str) -> None:
    assert spill_fraction("Linux", release, total=24 * GIB, available=20 * GIB) is None


def test_a_process_alone_on_a_gpu_uses_everything_outside_its_allocator() -> None:
    assert bytes_outside_allocator(used=1543 * MIB, reserved=GIB) == 519 * MIB
    assert bytes_outside_allocator(used=0, reserved=GIB) == 0


def test_memory_of_other_processes_does_not_reduce_the_budget() -> None:
    assert bytes_outside_allocator(used=22 * GIB, reserved=GIB) == OUTSIDE[-1]


class FakeGpu:
    """A GPU of 8 GiB, of which this process's allocator reserved 5 GiB and 2 GiB are free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fraction = 1.0
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2 * GIB, 8 * GIB))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 5 * GIB)
        monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: self.fraction, raising=False)
        monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", self.set_fraction)

    def set_fraction(self, fraction: float, device: torch.device) -> None:
        assert device == GPU
        self.fraction = fraction


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(_allocator, "_spill_warned", set())
    return FakeGpu(monkeypatch)


def test_memory_that_torch_reserved_already_is_available(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    with caplog.at_level(logging.WARNING, logger="oomph"):
        for _ in range(2):
            gpu.fraction = 1.0
            cap_allocator_below_spill(GPU)
    assert gpu.fraction == pytest.approx((7 * GIB - 256 * MIB) / (8 * GIB))
    assert len(caplog.records) == 1
    assert "spills GPU memory into RAM" in caplog.text


def test_a_cap_of_the_user_is_kept(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    gpu.fraction = 0.5
    cap_allocator_below_spill(GPU)
    assert gpu.fraction == 0.5


def test_a_budget_covers_memory_outside_the_allocator(gpu: FakeGpu) -> None:
    cap_allocator(GPU, 4 * GIB)
    outside = min(GIB, OUTSIDE[-1])
    assert gpu.fraction == pytest.approx((4 * GIB - outside) / (8 * GIB))
    cap_allocator(GPU, 100 * GIB)
    assert gpu.fraction == 1.0
    cap_allocator(GPU, 1)
    assert gpu.fraction == 0.0


def test_the_limit_is_the_cap_or_the_free_memory(gpu: FakeGpu) -> None:
    assert allocator_limit(GPU) == 7 * GIB
    gpu.fraction = 0.25
    assert allocator_limit(GPU) == 2 * GIB
