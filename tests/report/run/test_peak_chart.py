from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from plotly import graph_objects

from oomph import Settings, predict
from oomph.prediction import Estimate, Origin, Prediction
from oomph.report.run._peak_chart import REST, largest_parts, peak_figure, peak_parts
from tests.conftest import QUICK_JOB


def with_allocated(prediction: Prediction, value: float) -> Prediction:
    return replace(prediction, allocated=Estimate(value, value, value, Origin.TRACED))


def leaves(trace: Any) -> dict[str, int]:
    inner = set(trace["parents"])
    nodes = zip(trace["ids"], trace["values"], strict=True)
    return {key: size for key, size in nodes if key not in inner}


@pytest.mark.medium
def test_leaves_of_a_gpu_add_up_to_the_predicted_peak_to_the_byte() -> None:
    need = predict(QUICK_JOB, Settings(batch=3), "RTX 3060")
    assert need.allocated.value > sum(owner.size for owner in need.peak.owners), "the allocator rounds up"
    check_leaves(need)


def test_leaves_add_up_to_the_predicted_peak_to_the_byte(prediction: Prediction) -> None:
    check_leaves(prediction)


def check_leaves(need: Prediction) -> None:
    for value in (need.allocated.value, need.allocated.value + 12_345_678):
        trace = peak_figure(with_allocated(need, value)).data[0]
        assert sum(leaves(trace).values()) == round(value)


def test_every_module_is_the_sum_of_its_children(prediction: Prediction) -> None:
    trace = peak_figure(prediction).data[0]
    sums: dict[str, int] = defaultdict(int)
    for parent, size in zip(trace["parents"], trace["values"], strict=True):
        sums[parent] += size
    values = dict(zip(trace["ids"], trace["values"], strict=True))
    assert {key: values[key] for key in sums if key} == {key: size for key, size in sums.items() if key}
    assert len(set(trace["ids"])) == len(trace["ids"])
    graph_objects.Figure(data=[dict(trace)])  # plotly accepts it


def test_a_lowered_prediction_scales_its_parts(prediction: Prediction) -> None:
    traced = sum(owner.size for owner in prediction.peak.owners)
    parts = peak_parts(with_allocated(prediction, traced * 0.7))
    assert sum(part.size for part in parts) == round(traced * 0.7)
    assert all(part.kind != REST and part.size >= 0 for part in parts)


def test_the_rest_is_named_and_modules_are_paths(prediction: Prediction) -> None:
    parts = peak_parts(prediction)
    rest = [part for part in parts if part.kind == REST]
    assert [part.size for part in rest] == [
        round(prediction.allocated.value) - sum(owner.size for owner in prediction.peak.owners)
    ]
    assert {".".join(part.path) for part in parts} >= {owner.module for owner in prediction.peak.owners if owner.module}
    assert largest_parts(prediction).rows[0][3] == f"{max(part.size for part in parts):,}"
