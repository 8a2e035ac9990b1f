from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from oomph.job import Job
from oomph.machine import find_target
from oomph.planner.explorer._repeated_step import repeated_step
from oomph.prediction import replay, trace_device
from oomph.settings import Settings, parse_allocator
from oomph.trace import Phase, trace_profile, trace_step

from .tables import classifier_job

DEVICE = trace_device(find_target("H200"))
EXPANDABLE = parse_allocator("expandable")
TEXT = Job(
    model=lambda: nn.Sequential(nn.Embedding(500, 256), nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)),
    batch=lambda n, _: (torch.zeros(n, 64, dtype=torch.long), torch.randn(n, 64, 256)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.AdamW(model.parameters()),
)


@pytest.mark.parametrize("job", [classifier_job(), TEXT], ids=["images", "text"])
@pytest.mark.parametrize(("precision", "micro_batches"), [("fp32", 3), ("amp-bf16", 1)])
def test_memory_is_that_of_a_trace_of_all_steps(job: Job, precision: str, micro_batches: int) -> None:
    one = Settings(batch=6, size=64, precision=precision)
    several = replace(one, batch=6 * micro_batches, micro_batch=6 if micro_batches > 1 else None)
    repeated = replay(repeated_step(trace_profile(job, one, DEVICE), micro_batches), EXPANDABLE)
    traced = replay(trace_step(job, several, DEVICE), EXPANDABLE)
    assert repeated.allocated == pytest.approx(traced.allocated, rel=1e-4)
    assert repeated.reserved == traced.reserved


def test_a_gradient_is_live_until_the_update_and_everything_else_once() -> None:
    trace = trace_profile(classifier_job(), Settings(batch=2, size=32), DEVICE)
    repeated = repeated_step(trace, 2)
    live: set[int] = set()
    for event in repeated.events:
        assert (event in live) is False
        live.add(event) if event > 0 else live.remove(-event)
    persistent = {storage.kind.value for storage in (repeated.storages[number - 1] for number in live)}
    assert "gradient" not in persistent
    assert {"parameter", "optimizer state"} <= persistent
    phases = [phase for _, _, phase in repeated.phase_starts]
    assert phases.count(Phase.FORWARD) == phases.count(Phase.BACKWARD) == 2 * phases.count(Phase.OPTIMIZER) == 4
