from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oomph.job import Job
from oomph.settings import Settings
from oomph.trace import TO_DEVICE, TO_HOST, CudaDevice, Phase, StorageKind, Trace, trace_profile, trace_step
from oomph.units import MIB

WIDTH, ROWS = 512, 1024  # a tensor of 2 MiB
LAYERS = 6


def batch(count: int, size: Any) -> tuple[Tensor, Tensor]:
    del size
    return torch.randn(count, WIDTH), torch.randn(count, WIDTH)


JOB = Job(
    model=lambda: nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS))),
    batch=batch,
    loss=F.mse_loss,
    optimizer=lambda model: torch.optim.AdamW(model.parameters(), 0.1),
)


def activations(trace: Trace) -> int:
    return sum(storage.size for storage in trace.storages if storage.kind is StorageKind.ACTIVATION)


def test_offloaded_activations_are_in_pinned_memory_and_come_back_one_by_one() -> None:
    plain = trace_profile(JOB, Settings(batch=ROWS), CudaDevice())
    trace = trace_profile(JOB, Settings(batch=ROWS, offload=("",)), CudaDevice())
    tensor = 2 * MIB
    assert plain.pinned == 0
    assert activations(plain) >= LAYERS * tensor
    assert activations(trace) < 3 * tensor  # what the loss keeps
    # The input and the output of each ReLU, which the next layer saves, too.
    assert trace.pinned == (LAYERS + 1) * tensor
    copied = {op: sum(cost.traffic for cost in trace.op_costs if cost.op == op) for op in (TO_HOST, TO_DEVICE)}
    assert copied[TO_HOST] == (LAYERS + 1) * tensor
    assert copied[TO_DEVICE] == (2 * LAYERS) * tensor  # each of them has two users, but the first and the last
    assert {cost.phase for cost in trace.op_costs if cost.op == TO_DEVICE} == {Phase.BACKWARD}


def test_only_the_named_modules_are_offloaded_in_every_micro_batch() -> None:
    trace = trace_step(JOB, Settings(batch=2 * ROWS, micro_batch=ROWS, offload=("0", "1")), CudaDevice())
    assert trace.pinned == 4 * 2 * MIB  # of one micro-batch; what both of them save is copied twice
    modules = {cost.module for cost in trace.op_costs if cost.op == TO_HOST}
    assert modules == {"0.0", "0.1", "1.0", "1.1"}


@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is optional")
def test_states_in_8_bits_need_two_bytes_for_each_weight() -> None:
    def states(optimizer: str) -> int:
        trace = trace_step(JOB, Settings(batch=8, optimizer=optimizer), CudaDevice())
        return sum(s.size for s in trace.storages if s.kind is StorageKind.STATE and s.phase is Phase.OPTIMIZER)

    weights, biases = LAYERS * WIDTH * WIDTH, LAYERS * WIDTH
    steps = 2 * LAYERS * 4
    assert states("given") == pytest.approx(8 * (weights + biases) + steps)
    tables = 2 * LAYERS * 256 * 4
    assert states("8bit") == pytest.approx(2 * weights * (1 + 4 / 256) + tables + 8 * biases + steps)
