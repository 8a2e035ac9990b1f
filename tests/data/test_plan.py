from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from oomph.data import (
    Cache,
    HostResources,
    ImageIndex,
    Loader,
    LoaderOptions,
    LoaderPlan,
    Transform,
    plan_loader,
    read_resources,
)
from oomph.errors import CannotFit, UsageError
from oomph.units import GIB, MIB

from .pictures import claim_size, photos
from .recipes import sleepy

LARGE = HostResources(memory=64 * GIB, bound="RAM", shm=32 * GIB, cores=16, gpu=True)


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    return ImageIndex.of(photos(tmp_path, 6))


def test_a_large_machine_gets_threads_pinned_memory_and_no_cache_yet(index: ImageIndex) -> None:
    plan = plan_loader(index, 640, 16, room=LARGE)
    assert (plan.threads, plan.most, plan.workers, plan.prefetch, plan.pin) == (8, 16, 0, 2, True)
    assert (plan.budget, plan.cache, plan.copies) == (GIB, "off", 0)
    assert plan.memory.pinned == 2 * 32 * MIB  # 18.75 MiB each, rounded up
    assert plan.memory.batches == 4 * 16 * 640 * 640 * 3
    assert "show that it pays" in plan.why("cache")


def test_every_choice_has_a_reason(index: ImageIndex) -> None:
    plan = plan_loader(index, 64, 4, room=LARGE)
    assert {decision.what for decision in plan.decisions} == {
        "budget",
        "threads",
        "workers",
        "prefetch",
        "pin",
        "cache",
    }
    assert all(len(decision.why) > 5 for decision in plan.decisions)
    assert str(plan).startswith("at most ")
    assert "of the 64 GiB that RAM leaves" in str(plan)


def test_what_is_asked_for_is_not_chosen(index: ImageIndex, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", "10MB")
    options = LoaderOptions(budget="100MB", threads=3, prefetch=5, pin=False, cache=cache)
    plan = plan_loader(index, 64, 4, options, LARGE)
    assert (plan.budget, plan.threads, plan.most, plan.prefetch, plan.pin) == (100_000_000, 3, 3, 5, False)
    assert (plan.cache, plan.copies, plan.memory.copies) == ("disk", 10_000_000, 0)
    assert {plan.why(what) for what in ("budget", "threads", "prefetch", "pin", "cache")} == {"as asked"}


def test_small_batches_are_made_further_ahead_so_that_threads_have_work(index: ImageIndex) -> None:
    assert plan_loader(index, 64, 1, room=LARGE).prefetch == 16
    assert plan_loader(index, 64, 2, room=LARGE).prefetch == 8


def test_a_tight_machine_gives_up_batches_ahead_then_pinned_memory_then_decoding(index: ImageIndex) -> None:
    batch = 64 * 640 * 640 * 3  # 75 MiB
    roomy = plan_loader(index, 640, 64, room=dataclasses.replace(LARGE, memory=2 * GIB))
    assert (roomy.prefetch, roomy.pin, roomy.budget) == (2, True, 512 * MIB)
    tight = plan_loader(index, 640, 64, room=dataclasses.replace(LARGE, memory=660 * MIB))
    assert (tight.prefetch, tight.pin) == (1, True)
    tighter = plan_loader(index, 640, 64, room=dataclasses.replace(LARGE, memory=400 * MIB))
    assert (tighter.prefetch, tighter.pin, tighter.budget) == (1, False, 100 * MIB)
    tightest = plan_loader(index, 640, 64, room=dataclasses.replace(LARGE, memory=3 * batch + 70 * MIB))
    assert (tightest.prefetch, tightest.budget) == (1, 70 * MIB)
    for plan in (roomy, tight, tighter, tightest):
        assert plan.peak - plan.memory.index <= plan.room.memory
    assert "RAM leaves no more than 400 MiB" in tighter.why("pin")


def test_what_cannot_fit_is_said_before_anything_is_allocated(index: ImageIndex) -> None:
    cgroup = HostResources(memory=200 * MIB, bound="cgroup limit", shm=0, cores=2, gpu=False)
    with pytest.raises(CannotFit, match=r"225 MiB of it for batches made ahead, and cgroup limit leaves .* 200 MiB"):
        plan_loader(index, 640, 64, room=cgroup)
    with pytest.raises(CannotFit):
        plan_loader(index, 64, 2, LoaderOptions(budget="1GB"), cgroup)


def test_threads_are_as_many_as_the_budget_holds_images(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "large.png")
    claim_size(tmp_path / "large.png", 1600, 1200)
    index = ImageIndex.open(tmp_path)
    plan = plan_loader(index, 64, 8, LoaderOptions(budget="40MB"), LARGE)
    assert plan.threads == plan.most < 8
    assert "hold at once" in plan.why("threads")


def test_headers_say_more_than_the_budget_where_a_sample_is_one_image(index: ImageIndex) -> None:
    plain = Loader(index, 64, 2, budget="50MB", threads=2)
    assert plain.predicted().decoding < 20_000_000
    assert Loader(index, 64, 2, budget="50MB", builder=Transform(sleepy)).predicted().decoding == 50_000_000


def test_workers_share_batches_through_shm_or_the_disk(index: ImageIndex) -> None:
    options = LoaderOptions(workers=2, prefetch=4)
    assert "in /dev/shm" in plan_loader(index, 640, 16, options, LARGE).why("workers")
    docker = dataclasses.replace(LARGE, shm=64 * MIB)
    assert "on the disk, because /dev/shm has 64 MiB" in plan_loader(index, 640, 16, options, docker).why("workers")


def test_a_plan_that_was_made_before_is_taken_as_it_is(index: ImageIndex) -> None:
    plan = plan_loader(index, 64, 2, LoaderOptions(budget="80MB"), LARGE)
    loader = Loader(index, 64, 2, options=plan)
    assert (loader.plan.threads, loader.plan.budget) == (plan.threads, 80_000_000)
    assert [batch.indices.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(UsageError, match="has threads and workers already"):
        Loader(index, 64, 2, options=plan, threads=2, workers=1)


@pytest.mark.parametrize(
    "words", [{"threads": 0}, {"prefetch": 0}, {"workers": -1}, {"start": "thread"}, {"cache": "on"}], ids=str
)
def test_wrong_options_are_one_sentence(words: dict[str, int | str]) -> None:
    with pytest.raises(UsageError):
        LoaderOptions(**words)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        plan_loader(ImageIndex.of([]), 0, 2)


def test_ranks_of_one_machine_share_what_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = read_resources()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    shared = read_resources()
    assert shared.memory == pytest.approx(alone.memory / 4, rel=0.1)
    assert shared.cores == max(alone.cores // 4, 1)


def test_a_process_under_an_address_space_limit_plans_within_it(tmp_path: Path) -> None:
    files = photos(tmp_path, 2)
    code = (
        "import resource\n"
        "from oomph.data import ImageIndex, plan_loader\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({600 * MIB}, {600 * MIB}))\n"
        f"plan = plan_loader(ImageIndex.of({files!r}), 64, 2)\n"
        "print(plan.room.bound, plan.budget, plan.room.memory)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    *bound, budget, memory = said.split()
    assert " ".join(bound) == "data limit"
    assert int(memory) < 600 * MIB
    assert int(budget) == max(int(memory) // 4, 64 * MIB)


def test_a_loader_compares_what_it_held_with_what_was_predicted(index: ImageIndex) -> None:
    loader = Loader(index, 64, 2)
    assert isinstance(loader.plan, LoaderPlan)
    list(loader)
    report = loader.report()
    assert 0 < report.measured.decoding <= report.plan.memory.decoding
    assert report.measured.batches == report.plan.memory.batches
    assert report.pace.batches == 3
    assert str(report).startswith("loading takes at most ")
