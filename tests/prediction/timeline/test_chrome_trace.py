"""Trace events: what Perfetto requires of them, and the prediction's numbers in them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from oomph.prediction import chrome_trace

from .traced_jobs import JOBS, predicted


def events_of(name: str, allocator: str = "expandable") -> list[dict[str, Any]]:
    trace, settings, target, _ = predicted(name, allocator)
    document = json.loads(json.dumps(chrome_trace(trace, settings, target)))
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def slices(events: list[dict[str, Any]], name: str = "") -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and (not name or event["name"] == name)]


def end(event: dict[str, Any]) -> float:
    return round(event["ts"] + event["dur"], 3)


@pytest.mark.medium
@pytest.mark.parametrize("name", JOBS)
def test_events_are_sorted_and_slices_nest(name: str) -> None:
    events = events_of(name)
    assert [event["ph"] for event in events[:2]] == ["M", "M"]
    assert {event["ph"] for event in events[2:]} == {"X", "C"}
    assert all(event["ts"] <= after["ts"] for event, after in itertools.pairwise(events[2:]))
    around: list[dict[str, Any]] = []
    for event in slices(events):
        assert event["dur"] > 0
        while around and end(around[-1]) <= event["ts"]:
            around.pop()
        assert not around or end(event) <= end(around[-1]), (event, around[-1])
        around.append(event)


def test_slices_are_steps_phases_modules_and_operations() -> None:
    events = events_of("sgd")
    _, _, _, prediction = predicted("sgd", "expandable")
    steps = [slices(events, f"step {number}") for number in (1, 2, 3)]
    assert [len(found) for found in steps] == [1, 1, 1]
    for (step,) in steps:
        assert step["dur"] == pytest.approx(prediction.seconds.value * 1e6, abs=0.01)
    assert [len(slices(events, phase)) for phase in ("forward", "backward", "optimizer")] == [3, 3, 3]
    block = next(event for event in slices(events, "blocks.1 (Block)"))
    linear = next(event for event in slices(events, "blocks.1.wide (Linear)"))
    product = next(event for event in slices(events, "addmm") if event["ts"] >= linear["ts"])
    assert block["ts"] <= linear["ts"] <= product["ts"]
    assert end(product) <= end(linear) <= end(block)
    assert product["args"]["floating-point operations"] > 0


@pytest.mark.parametrize("allocator", ["expandable", "default"])
def test_counters_have_the_predicted_peaks(allocator: str) -> None:
    _, _, _, prediction = predicted("adamw-accumulate", allocator)
    events = events_of("adamw-accumulate", allocator)
    for name, estimate in (("allocated", prediction.allocated), ("reserved", prediction.reserved)):
        counters = [event for event in events if event["ph"] == "C" and event["name"] == name]
        assert max(event["args"]["bytes"] for event in counters) == estimate.value
