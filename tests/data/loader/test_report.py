from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomph.data import HostResources, ImageIndex, Loader, LoaderOptions, Timings, TransformedSamples, plan_loader
from oomph.data.loader._autotuner import Autotuner
from oomph.data.loader._cached_decoder import CachedDecoder
from oomph.data.loader._report import describe_bottleneck
from oomph.units import GIB

from ..builders import sleep_20_ms
from ..images import save_photos

RESOURCES = HostResources(memory=16 * GIB, limited_by="RAM", shm=8 * GIB, cores=12, gpu=False)


def test_report_compares_measured_with_predicted_memory(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 6), 64, 2)
    list(loader)
    report = loader.report()
    assert 0 < report.measured.decoding <= report.plan.memory.decoding
    assert report.measured.batches == report.plan.memory.batches
    assert report.total.batches == 3
    assert str(report).startswith("memory: at most ")


@pytest.mark.medium
def test_bottleneck_is_one_sentence_with_advice(tmp_path: Path) -> None:
    builder, options = TransformedSamples(sleep_20_ms), LoaderOptions(cache="off")
    loader = Loader(save_photos(tmp_path, 4) * 4, 32, 1, builder=builder, threads=1, options=options)
    list(loader)
    bottleneck = loader.report().bottleneck
    assert bottleneck is not None
    assert "of the time is spent waiting for data; this would help: " in bottleneck
    assert "a faster sample builder" in bottleneck
    assert bottleneck in str(loader.report())


def test_no_bottleneck_before_the_first_batch(tmp_path: Path) -> None:
    assert Loader(save_photos(tmp_path, 2), 32, 1).report().bottleneck is None


@pytest.mark.parametrize(
    ("options", "threads", "advice"),
    [
        ({"threads": 2}, 2, "more threads (2 on 12 cores)"),
        ({}, 8, None),  # the number is tuned
        ({"workers": 4}, 4, "more workers (4 on 12 cores)"),
        ({"workers": 4}, 3, None),  # tuning, or the budget, holds one back
        ({"workers": 4, "threads": 1}, 1, "more workers (1 on 12 cores)"),
        ({"threads": 12}, 12, None),
    ],
)
def test_more_threads_are_advised_only_if_the_user_must_request_them(
    tmp_path: Path, options: dict[str, Any], threads: int, advice: str | None
) -> None:
    index = ImageIndex.of(save_photos(tmp_path, 2))
    plan = plan_loader(index, 32, 2, LoaderOptions(**options), RESOURCES).with_threads(threads, "for this test")
    tuner = Autotuner(plan, CachedDecoder(), 0, expects_repeats=False)
    tuner.meter.recent = tuner.meter.total = Timings(10, wait_seconds=8, consumer_seconds=2, work_seconds=10)
    sentence = describe_bottleneck(tuner, index) or ""
    assert (advice in sentence) if advice else ("more " not in sentence)
