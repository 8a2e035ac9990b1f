"""The ends of the sliders, with predictions that succeed or fail as told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from oomph.errors import UsageError
from oomph.machine import find_target
from oomph.planner.explorer._choices import groups_of
from oomph.planner.explorer._family import Family, FamilyRequest
from oomph.planner.explorer._ranges import Ranges, find_ranges
from oomph.planner.explorer._table import PEAK_KINDS, Need
from oomph.planner.explorer._workers import Request, Result
from oomph.settings import Settings, Size

GROUPS = groups_of(find_target("RTX 3060"))
MIB = 2**20


def family(samples: int) -> Family:
    need = Need(100 * MIB * samples, 100 * MIB * samples, (0,) * len(PEAK_KINDS))
    grid = {"given": ((need,),)}
    return Family(grid, grid, (1, 1), (0, 0, 0), {}, 0, {}, 0, is_derived=True, assumptions=())


def ranges(settings: Settings, *, sizes: Iterable[Size], smallest: int = 1, fused: bool = True) -> Ranges:
    """Find the ranges of a Job that runs with some sizes, from a number of samples on."""

    def result(request: Request) -> Result:
        assert isinstance(request, FamilyRequest)
        asked = request.settings
        if asked.size not in sizes:
            return UsageError(f"size {asked.size} fails", "use another one")
        if asked.batch < smallest or (request.optimizers == ("fused",) and not fused):
            return UsageError("it fails", "don't")
        return family(asked.batch)

    def predict(requests: Iterable[Request]) -> Iterator[Result]:
        return map(result, requests)

    return find_ranges(predict, settings, GROUPS)


def test_sizes_go_from_a_half_to_twice_the_requested_one() -> None:
    found = ranges(Settings(batch=4, size=640), sizes=(320, 640, 1280))
    assert (found.sizes.values[0], found.sizes.values[-1]) == (320, 1280)
    assert found.sizes.problem == ""


@pytest.mark.parametrize(("sizes", "ends"), [((320, 640), (320, 640)), ((640, 1280), (640, 1280))])
def test_a_size_that_fails_is_not_offered(sizes: tuple[int, ...], ends: tuple[int, int]) -> None:
    found = ranges(Settings(batch=4, size=640), sizes=sizes)
    assert (found.sizes.values[0], found.sizes.values[-1]) == ends


def test_the_only_size_is_fixed_with_the_reason() -> None:
    found = ranges(Settings(batch=4, size=224), sizes=(224,))
    assert found.sizes.values == (224,)
    assert found.sizes.problem == "the Job runs with no other size (size 448 fails)"
    assert found.requested_sizes == ()


@pytest.mark.parametrize(("size", "reason"), [(0, "without a size"), ((640, 480), "a height and a width, 640x480")])
def test_no_number_is_fixed_with_the_reason(size: Size, reason: str) -> None:
    found = ranges(Settings(batch=4, size=size), sizes=(size,))
    assert reason in found.sizes.problem


def test_one_sample_that_fails_is_not_offered() -> None:
    assert ranges(Settings(batch=4, size=64), sizes=(32, 64, 128)).samples.values[0] == 1
    assert ranges(Settings(batch=4, size=64), sizes=(32, 64, 128), smallest=2).samples.values[0] == 2


def test_an_update_that_fails_has_the_reason() -> None:
    found = ranges(Settings(batch=4), sizes=(0,), fused=False)
    assert found.possible_optimizers == ("given", "8bit")
    assert [choice.problem for choice in found.optimizers] == ["", "it fails", ""]


def test_the_requested_update_is_offered() -> None:
    assert ranges(Settings(batch=4), sizes=(0,)).possible_optimizers == ("given", "fused", "8bit")
    found = ranges(Settings(batch=4, optimizer="single"), sizes=(0,))
    assert found.possible_optimizers == ("given", "fused", "8bit", "single")


def test_the_planned_micro_batch_is_offered_and_the_largest_gpu_bounds_the_batch() -> None:
    found = ranges(Settings(batch=28, micro_batch=14), sizes=(0,))
    assert {14, 28} <= set(found.samples.values)
    assert found.samples.values[-1] == 16 * 28  # of the 1,400 that fill an H200


def test_a_job_that_always_fails_is_reported() -> None:
    with pytest.raises(UsageError, match="size 64 fails"):
        ranges(Settings(batch=4, size=64), sizes=())
