"""Memory that steps use and memory that is left, on the host and in predictions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import RetriesExhausted
from oomph.machine import HostMemoryLow, rss_bytes
from oomph.machine.host import _memory_watch
from oomph.patches import eager_modules
from oomph.patches._allocator import bytes_outside_allocator
from oomph.prediction import Estimate, Origin, Prediction
from oomph.recovery._memory import FitPredictor, HostMemory, NullMemory, memory_of
from oomph.units import GIB, MIB

from .faults import in_split_check
from .nets import guard_of, plain_batch, plain_guard, plain_net

CPU = torch.device("cpu")


def test_each_device_has_its_memory() -> None:
    assert isinstance(memory_of(CPU, None), HostMemory)
    null = memory_of(torch.device("meta"), None)
    assert isinstance(null, NullMemory)
    assert null.peak is None
    assert null.fits(1e9)


def test_a_host_budget_is_checked_before_it_is_exceeded() -> None:
    memory, full = HostMemory(rss_bytes() + GIB), HostMemory(rss_bytes() + MIB)
    with memory.watch(nn.Linear(1, 1), reset_peak=False):
        memory.check()
    with full.watch(nn.Linear(1, 1), reset_peak=False), pytest.raises(HostMemoryLow, match=r"the host has .* left"):
        full.check()
    assert full.limit() == pytest.approx(rss_bytes() + MIB, abs=64 * MIB)


def test_a_step_that_a_host_budget_does_not_allow_ends_as_out_of_memory() -> None:
    guard = plain_guard(budget=rss_bytes() + MIB)
    with pytest.raises(RetriesExhausted, match="the host has"):
        guard.step(plain_batch())
    assert guard.steps == 0


def test_the_growth_of_a_step_is_measured_and_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([1000 * MIB, 1100 * MIB, *[1050 * MIB] * 100])
    monkeypatch.setattr(_memory_watch, "rss_bytes", lambda: next(readings))
    memory = HostMemory(2000 * MIB)
    with memory.watch(nn.Linear(1, 1), reset_peak=False):
        memory.check()
    assert memory.peak == 1100 * MIB
    assert memory.fits(9.0)
    assert not memory.fits(9.1), "95 % of the 950 MiB that are left"


def test_modules_are_checked_only_while_memory_is_short() -> None:
    net, checks = plain_net(), []
    roomy = HostMemory(1 << 50)
    roomy.check = lambda: checks.append(1)  # type: ignore[method-assign]
    for _ in range(5):
        with roomy.watch(net, reset_peak=False):
            net(plain_batch()[0])
    assert len(checks) == 3 * 4, "in the steps in which the growth is measured"
    tight = HostMemory(rss_bytes() + 100 * MIB)
    tight.check = lambda: checks.append(1)  # type: ignore[method-assign]
    for _ in range(5):
        with tight.watch(net, reset_peak=False):
            net(plain_batch()[0])
    assert len(checks) == (3 + 5) * 4


def test_a_model_can_be_pickled_between_steps() -> None:
    guard = plain_guard()
    guard.step(plain_batch())
    pickle.dumps(guard.model)


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_compiled_and_scripted_modules_are_not_entered() -> None:
    compiled = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    compiled.compile()
    scripted: Any = torch.jit.script(nn.Linear(4, 4))
    net = nn.Sequential(nn.Linear(4, 4), compiled, scripted)
    assert list(eager_modules(net)) == [net, net[0]]


def prediction(**sizes: int) -> Prediction:
    """Return a prediction with only these figures."""
    incomplete = object.__new__(Prediction)
    for name, size in sizes.items():
        object.__setattr__(incomplete, name, Estimate(size, size, size, Origin.TRACED))
    return incomplete


class FixedMemory(NullMemory):
    """A device with a fixed limit."""

    def limit(self) -> int:  # type: ignore[override]
        return 1000


def test_predictions_are_compared_with_the_limit() -> None:
    predictor = FitPredictor(lambda size: 100 * size, FixedMemory())
    assert predictor.fits(10, 1)
    assert not predictor.fits(11, 1)
    by_prediction = FitPredictor(lambda size: prediction(full_speed=100 * size, device=10**6), FixedMemory())
    assert by_prediction.fits(10, 1)
    assert not by_prediction.fits(11, 1)
    on_host = FitPredictor(lambda size: prediction(full_speed=1 << 60, device=size), HostMemory(1 << 50))
    assert on_host.fits(10, 1)


def test_without_a_predictor_the_measured_growth_is_scaled() -> None:
    factors: list[float] = []

    class NotingMemory(NullMemory):
        def fits(self, factor: float) -> bool:
            factors.append(factor)
            return True

    assert FitPredictor(None, NotingMemory()).fits(8, 4)
    assert factors == [2.0]


def test_a_larger_micro_batch_that_would_not_fit_is_not_tried() -> None:
    calls = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        if not in_split_check():
            calls.append(len(batch[0]))
        if len(batch[0]) > 4:
            raise MemoryError
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    guard = guard_of(plain_net(), forward=forward, cooldown_steps=1)
    guard._memory.fits = lambda factor: False  # type: ignore[method-assign]
    for _ in range(4):
        guard.step(plain_batch())
    assert calls.count(8) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_budget_splits_a_batch() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).cuda()
    batch = torch.randn(8192, 2048), torch.randn(8192, 2048)
    try:
        whole = guard_of(net, budget="4GiB").step(batch)
        assert whole.micro_batches == 1
        assert whole.peak_bytes is not None
        free, total = torch.cuda.mem_get_info()
        outside = bytes_outside_allocator(total - free, torch.cuda.memory_reserved())
        split = guard_of(net, budget=int(0.7 * whole.peak_bytes) + outside, cooldown_steps=1)
        reports = [split.step(batch) for _ in range(4)]
        assert reports[0].micro_batches > 1
        assert reports[0].retries >= 1
        torch.cuda.synchronize()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
