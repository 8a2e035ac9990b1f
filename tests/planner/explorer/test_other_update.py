from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn, optim

from oomph.machine import find_target
from oomph.planner.explorer._other_update import with_update_of
from oomph.planner.explorer._repeated_step import repeated_step
from oomph.prediction import replay, trace_device
from oomph.settings import Settings, parse_allocator
from oomph.trace import Trace, trace_profile

from .tables import classifier_job

DEVICE = trace_device(find_target("H200"))


@pytest.mark.parametrize(("base", "other"), [("fused", "given"), ("given", "single")])
def test_it_is_the_step_with_the_other_update(base: str, other: str) -> None:
    def adamw(model: nn.Module) -> optim.Optimizer:
        return optim.AdamW(model.parameters())

    job = classifier_job(adamw)
    large, small = Settings(batch=8, size=32), Settings(batch=2, size=16)

    def traced(settings: Settings, optimizer: str) -> Trace:
        return trace_profile(job, replace(settings, optimizer=optimizer), DEVICE)

    joined = with_update_of(traced(large, base), traced(small, other))
    real = traced(large, other)
    for config in (parse_allocator("expandable"), parse_allocator("default")):
        assert replay(repeated_step(joined, 2), config) == replay(repeated_step(real, 2), config)
    live = set()
    for event in joined.events:
        live.add(event) if event > 0 else live.remove(-event)
    assert not [number for number in live if joined.storages[number - 1].kind.value == "gradient"]
