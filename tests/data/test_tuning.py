from __future__ import annotations

import time
from pathlib import Path

import pytest

from oomph.data import (
    HostResources,
    ImageIndex,
    Loader,
    LoaderOptions,
    LoaderPlan,
    Timings,
    Transform,
    plan_loader,
)
from oomph.data.loader._account import Course, bottleneck
from oomph.data.loader._pays import Case, judge_cache
from oomph.data.loader._shelf import Decoded
from oomph.data.loader._tuning import Tuner
from oomph.units import GIB, MIB

from .pictures import photos
from .recipes import sleepy

ROOM = HostResources(memory=16 * GIB, bound="RAM", shm=8 * GIB, cores=12, gpu=False)


def pace(waited: float, used: float, worked: float, queued: float = 0.0) -> Timings:
    return Timings(10, waited, used, worked, queued)


def test_threads_are_added_while_the_consumer_waits_as_many_as_its_speed_needs() -> None:
    tuner = Tuner(2, 16)
    assert tuner.judge(pace(waited=8, used=2, worked=10)) == 7  # 10 s of work in 2 s of the consumer's, and a quarter
    assert tuner.judge(pace(waited=0.1, used=2, worked=10)) == 7


def test_threads_that_bring_nothing_are_given_back_and_not_tried_again() -> None:
    tuner = Tuner(4, 16)
    waiting = pace(waited=8, used=2, worked=40)
    assert tuner.judge(waiting) == 16
    assert not tuner.exhausted
    assert tuner.judge(waiting) == 4
    assert tuner.judge(waiting) == 4
    assert tuner.exhausted


def test_threads_are_given_back_while_nobody_waits_and_come_back_for_good() -> None:
    tuner = Tuner(8, 8)
    assert tuner.judge(pace(waited=0, used=10, worked=5)) == 1
    assert tuner.judge(pace(waited=5, used=10, worked=15)) == 2
    assert tuner.judge(pace(waited=0, used=10, worked=5)) == 2  # one was too few


def test_what_one_pass_needed_at_least_the_next_one_may_not() -> None:
    tuner = Tuner(10, 14)
    assert tuner.judge(pace(waited=5, used=5, worked=100)) == 14
    assert tuner.judge(pace(waited=0, used=5, worked=10)) == 11
    tuner.begin_again()
    assert tuner.judge(pace(waited=0, used=5, worked=10)) == 3


def test_waiting_for_the_budget_is_no_reason_for_threads() -> None:
    assert Tuner(4, 16).judge(pace(waited=8, used=4, worked=40, queued=36)) == 5


def planned(index: ImageIndex, batch: int) -> LoaderPlan:
    return plan_loader(index, 32, batch, LoaderOptions(cache="off"), ROOM)


def test_a_real_consumer_that_waits_gets_threads_and_the_same_batches(tmp_path: Path) -> None:
    index = ImageIndex.of(photos(tmp_path, 12) * 20)
    runs = {}
    for name, plan in (("tuned", planned(index, 12)), ("fixed", LoaderOptions(threads=8))):
        loader = Loader(index, 32, 12, builder=Transform(sleepy), shuffle=True, options=plan)
        assert loader.plan.threads == 8
        runs[name] = [(batch.indices.tolist(), int(batch.images.numpy().sum())) for batch in loader]
        assert loader.plan.threads == (12 if name == "tuned" else 8)
        assert (loader.plan.why("threads") == "as asked") == (name == "fixed")
    assert runs["tuned"] == runs["fixed"]


def test_a_slow_consumer_gets_along_with_fewer_threads(tmp_path: Path) -> None:
    files = photos(tmp_path, 4) * 24
    loader = Loader(files, 32, 2, options=planned(ImageIndex.of(files), 2))
    for _ in range(5):  # on a machine that is busy with other tests even this consumer waits at first
        seen = []
        for batch in loader:
            seen += batch.indices.tolist()
            time.sleep(0.02)
        assert seen == list(range(96))
        if loader.plan.threads < 8:
            break
    assert loader.plan.threads < 8
    assert "brought nothing" in loader.plan.why("threads")
    assert loader.report().bottleneck is None


def test_a_bottleneck_is_one_sentence_with_what_would_help(tmp_path: Path) -> None:
    loader = Loader(
        photos(tmp_path, 4) * 4, 32, 1, builder=Transform(sleepy), threads=1, options=LoaderOptions(cache="off")
    )
    list(loader)
    said = loader.report().bottleneck
    assert said is not None
    assert said.startswith("data are waited for ")
    assert "a faster recipe" in said
    assert said in str(loader.report())


def test_before_batches_were_made_nothing_is_said_of_them(tmp_path: Path) -> None:
    assert Loader(photos(tmp_path, 2), 32, 1).report().bottleneck is None


SLOW = Decoded(pictures=20, bytes=20 * 819_200, seconds=1.6, boxes=1)  # 80 ms for a copy of 640×427
WAITING, BUSY = pace(waited=5, used=5, worked=10), pace(waited=0, used=5, worked=10)


def test_a_cache_pays_when_decoding_is_slow_waited_for_and_copies_fit() -> None:
    found = judge_cache(Case(WAITING, SLOW, 2 * GIB, ROOM))
    assert found.bytes == 2 * GIB
    assert "decoding an image takes 80.0 ms, reading its copy 1.1 ms" in found.why


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case(BUSY, SLOW, GIB, ROOM), "before they are asked for"),
        (Case(WAITING, SLOW._replace(boxes=5), GIB, ROOM), "changing sizes"),
        (Case(WAITING, SLOW._replace(seconds=0.04), GIB, ROOM), "too little to gain"),
        (Case(WAITING, SLOW._replace(pictures=3), GIB, ROOM), "too few"),
        (Case(WAITING, SLOW, 900 * GIB, ROOM), "copies would take 900 GiB"),
        (Case(WAITING, SLOW, GIB, HostResources(GIB, "RAM", 64 * MIB, 4, gpu=False)), "64 MiB of /dev/shm are left"),
    ],
)
def test_a_cache_stays_off_with_its_reason(case: Case, why: str) -> None:
    found = judge_cache(case)
    assert found.bytes == 0
    assert why in found.why


def test_a_cache_never_takes_more_than_half_of_what_is_left() -> None:
    found = judge_cache(Case(WAITING, SLOW, 20 * GIB, ROOM))
    assert found.bytes == ROOM.shm * 9 // 10 <= ROOM.memory // 2
    assert "36% of the images fit" in found.why


@pytest.mark.parametrize(
    ("options", "at_work", "said"),
    [
        ({"threads": 2}, 2, "more threads (2 for 12 cores)"),
        ({}, 8, None),  # they are tuned
        ({"workers": 4}, 4, "more workers (4 for 12 cores)"),
        ({"workers": 4}, 3, None),  # tuning, or the budget, holds one back
        ({"workers": 4, "threads": 1}, 1, "more workers (1 for 12 cores)"),
        ({"threads": 12}, 12, None),
    ],
)
def test_more_hands_are_advised_only_where_somebody_has_to_ask_for_them(
    tmp_path: Path, options: dict[str, int], at_work: int, said: str | None
) -> None:
    index = ImageIndex.of(photos(tmp_path, 2))
    plan = plan_loader(index, 32, 2, LoaderOptions(**options), ROOM)  # type: ignore[arg-type]
    waiting, nothing = pace(waited=8, used=2, worked=10), Decoded(0, 0, 0.0, 0)
    course = Course(plan.with_threads(at_work, "of the case"), index, waiting, waiting, nothing, 0)
    words = bottleneck(course) or ""
    assert (said in words) if said else ("more " not in words)
