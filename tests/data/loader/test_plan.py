from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from PIL import Image

from oomph.data import (
    Cache,
    HostResources,
    ImageIndex,
    Loader,
    LoaderOptions,
    TransformedSamples,
    plan_loader,
)
from oomph.errors import CannotFit, UsageError
from oomph.units import GIB, MIB

from ..builders import sleep_20_ms
from ..images import overwrite_size, save_photos

LARGE = HostResources(memory=64 * GIB, limited_by="RAM", shm=32 * GIB, cores=16, gpu=True)


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    return ImageIndex.of(save_photos(tmp_path, 6))


def test_large_machine_gets_threads_and_pinned_memory(index: ImageIndex) -> None:
    plan = plan_loader(index, 640, 16, resources=LARGE)
    assert (plan.threads, plan.max_threads, plan.workers, plan.prefetch, plan.pin_memory) == (8, 16, 0, 2, True)
    assert (plan.budget, plan.cache, plan.cache_bytes) == (GIB, "off", 0)
    assert plan.memory.pinned == 2 * 32 * MIB  # 18.75 MiB each, rounded up
    assert plan.memory.batches == 4 * 16 * 640 * 640 * 3
    assert "decided after the first batches" in plan.why("cache")


def test_every_setting_has_a_reason(index: ImageIndex) -> None:
    plan = plan_loader(index, 64, 4, resources=LARGE)
    settings = {decision.setting for decision in plan.decisions}
    assert settings == {"budget", "threads", "workers", "prefetch", "pin_memory", "cache"}
    assert all(len(decision.why) > 5 for decision in plan.decisions)
    assert str(plan).startswith("memory: at most ")
    assert "64 GiB available (RAM)" in str(plan)
    assert "pin_memory: yes (batches go to a GPU)" in str(plan)


def test_requested_settings_are_kept(index: ImageIndex, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", "10MB")
    options = LoaderOptions(budget="100MB", threads=3, prefetch=5, pin_memory=False, cache=cache)
    plan = plan_loader(index, 64, 4, options, LARGE)
    assert (plan.budget, plan.threads, plan.max_threads, plan.prefetch) == (100_000_000, 3, 3, 5)
    assert not plan.pin_memory
    assert (plan.cache, plan.cache_bytes, plan.memory.cache) == ("disk", 10_000_000, 0)
    reasons = {plan.why(setting) for setting in ("budget", "threads", "prefetch", "pin_memory", "cache")}
    assert reasons == {"as requested"}


def test_small_batches_are_prefetched_further_ahead(index: ImageIndex) -> None:
    assert plan_loader(index, 64, 1, resources=LARGE).prefetch == 16
    assert plan_loader(index, 64, 2, resources=LARGE).prefetch == 8


def test_short_memory_reduces_prefetch_then_pinned_memory_then_the_budget(index: ImageIndex) -> None:
    batch = 64 * 640 * 640 * 3  # 75 MiB

    def plan_with(memory: int) -> tuple[int, bool, int]:
        plan = plan_loader(index, 640, 64, resources=dataclasses.replace(LARGE, memory=memory))
        assert plan.peak - plan.memory.index <= memory
        return plan.prefetch, plan.pin_memory, plan.budget

    assert plan_with(2 * GIB) == (2, True, 512 * MIB)
    assert plan_with(660 * MIB)[:2] == (1, True)
    assert plan_with(400 * MIB) == (1, False, 100 * MIB)
    assert plan_with(3 * batch + 70 * MIB) == (1, False, 70 * MIB)
    reduced = plan_loader(index, 640, 64, resources=dataclasses.replace(LARGE, memory=400 * MIB))
    assert reduced.why("pin_memory") == "only 400 MiB available (RAM)"


def test_loader_that_cannot_fit_is_rejected(index: ImageIndex) -> None:
    container = HostResources(memory=200 * MIB, limited_by="cgroup limit", shm=0, cores=2, gpu=False)
    with pytest.raises(CannotFit, match=r"225 MiB for prefetched batches.*only 200 MiB available .cgroup limit"):
        plan_loader(index, 640, 64, resources=container)
    with pytest.raises(CannotFit):
        plan_loader(index, 64, 2, LoaderOptions(budget="1GB"), container)


def test_budget_limits_the_number_of_threads(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "large.png")
    overwrite_size(tmp_path / "large.png", 1600, 1200)
    plan = plan_loader(ImageIndex.open(tmp_path), 64, 8, LoaderOptions(budget="40MB"), LARGE)
    assert plan.threads == plan.max_threads < 8
    assert "fit no more images at once" in plan.why("threads")


def test_headers_tighten_the_prediction_for_whole_images(index: ImageIndex) -> None:
    whole = Loader(index, 64, 2, budget="50MB", threads=2)
    assert whole.plan.memory.decoding < 20_000_000
    transformed = Loader(index, 64, 2, budget="50MB", builder=TransformedSamples(sleep_20_ms))
    assert transformed.plan.memory.decoding == 50_000_000


def test_workers_share_batches_through_shm_or_disk(index: ImageIndex) -> None:
    options = LoaderOptions(workers=2, prefetch=4)
    assert "in /dev/shm" in plan_loader(index, 640, 16, options, LARGE).why("workers")
    docker = dataclasses.replace(LARGE, shm=64 * MIB)
    assert "on disk: 112 MiB exceed /dev/shm (64 MiB)" in plan_loader(index, 640, 16, options, docker).why("workers")


def test_loader_accepts_a_finished_plan(index: ImageIndex) -> None:
    plan = plan_loader(index, 64, 2, LoaderOptions(budget="80MB"), LARGE)
    loader = Loader(index, 64, 2, options=plan)
    assert loader.plan == plan
    assert [batch.indices.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    larger = Loader(index, 128, 4, options=plan)
    assert larger.plan.memory.batches == 8 * plan.memory.batches
    with pytest.raises(UsageError, match="already sets threads and workers"):
        Loader(index, 64, 2, options=plan, threads=2, workers=1)


@pytest.mark.parametrize(
    "options", [{"threads": 0}, {"prefetch": 0}, {"workers": -1}, {"start_method": "thread"}, {"cache": "on"}], ids=str
)
def test_invalid_options_are_rejected(options: dict[str, int | str]) -> None:
    with pytest.raises(UsageError):
        LoaderOptions(**options)  # type: ignore[arg-type]


def test_empty_batch_is_rejected() -> None:
    with pytest.raises(UsageError, match="a batch of 2 images of 0×0 has no pixels"):
        plan_loader(ImageIndex.of([]), 0, 2)
