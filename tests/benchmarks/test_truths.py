"""Predictions made here, without a GPU, against what was measured on an H200: our own plain networks.

`make compare` does the same for all 69 configurations, torchvision, timm and transformers included.
"""

from __future__ import annotations

import json
import statistics
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import oomph

REPO = Path(__file__).parents[2]
sys.path.append(str(REPO / "benchmarks"))
TRUTHS = [
    json.loads(line) for line in (REPO / "benchmarks/results/memory-h200-2026-11-15.jsonl").read_text().splitlines()
]
OWN = """
    mlp-fp32 mlp-bf16 unet-fp32 unet-fp16-last unet-group-bf16 unet3d-bf16 gpt-bf16 gpt-fp32-dropout gpt-fp16-dropout
    gpt-checkpoint gpt-reentrant gpt-pure-bf16 vit-own-bf16 lstm-fp32 gru-fp16 convnext-own convnext-own-last
    autoencoder-fp16 detector-fp32 detector-fp16 detector-last
""".split()  # noqa: SIM905  a list of words reads best as words


@cache
def predicted(name: str, allocator: str) -> Any:
    import dataclasses

    from zoo import configs

    config = configs()[name]
    return oomph.predict(config.job, dataclasses.replace(config.settings, allocator=allocator), "H200")


def truth(name: str, allocator: str) -> dict[str, Any]:
    (row,) = [row for row in TRUTHS if (row["name"], row["allocator"]) == (name, allocator)]
    return dict(row)


@pytest.mark.parametrize("name", OWN)
def test_allocated_is_within_its_range_and_two_percent(name: str) -> None:
    figure, real = predicted(name, "expandable").allocated, truth(name, "expandable")["allocated"]
    assert figure.low <= real <= figure.high
    assert figure.value == pytest.approx(real, rel=0.02)


@pytest.mark.parametrize("name", OWN)
def test_a_cap_at_the_high_of_needed_would_have_run(name: str) -> None:
    figure, real = predicted(name, "expandable").needed, truth(name, "expandable")["needed"]
    assert figure.high >= real
    assert figure.high <= real * 1.14


def test_the_median_error_is_a_small_fraction_of_a_percent() -> None:
    errors = [
        abs(predicted(name, "expandable").allocated.value / truth(name, "expandable")["allocated"] - 1) for name in OWN
    ]
    assert statistics.median(errors) < 0.0005
