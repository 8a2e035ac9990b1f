from __future__ import annotations

from oomph.sweeps import Goal, Spread, Summary, recommend
from oomph.units import GIB

GOAL = Goal("mAP50")
ONE_SEED = "With one seed the scatter is unknown: a small difference may be chance."


def make_summary(
    img: int,
    metric: float,
    *,
    memory: float = 1.0,
    seconds: float = 60.0,
    deviation: float | None = None,
    sizes: tuple[float, float, float] | None = None,
) -> Summary:
    metrics = {"mAP50": Spread(metric, deviation)}
    if sizes is not None:
        names = ("AP small", "AP medium", "AP large")
        metrics |= {name: Spread(size) for name, size in zip(names, sizes, strict=True)}
    values = (("batch", 16), ("img", img))
    return Summary(values, 1 if deviation is None else 3, metrics, int(memory * GIB), seconds)


def test_the_best_is_compared_with_cheaper_cells_on_the_front() -> None:
    summaries = [
        make_summary(640, 0.612, memory=4),
        make_summary(416, 0.599, memory=1.8),
        make_summary(320, 0.5, memory=2),  # worse and larger than 416
    ]
    assert recommend(summaries, GOAL) == (
        "batch 16, img 640 has the best mAP50: 0.612 with 4 GiB in 1 min.",
        "img 416 instead of 640 saves 55 % of the memory for 1.3 points of mAP50.",
        ONE_SEED,
    )


def test_a_difference_within_the_scatter_is_called_that() -> None:
    summaries = [
        make_summary(640, 0.612, memory=4, deviation=0.002),
        make_summary(416, 0.608, memory=2, deviation=0.009),
        make_summary(320, 0.5, memory=1, deviation=0.009),
    ]
    within = "a difference of 0.4 points is within the scatter of the seeds (0.9)."
    assert recommend(summaries, GOAL)[1:] == (
        f"img 416 instead of 640 saves 50 % of the memory; {within}",
        "img 320 instead of 640 saves 75 % of the memory for 11.2 points of mAP50.",
    )


def test_losses_are_attributed_to_objects_of_a_size() -> None:
    best = make_summary(640, 0.6, memory=4, sizes=(0.3, 0.5, 0.7))
    only_small = make_summary(416, 0.58, memory=2, sizes=(0.2, 0.5, 0.71))
    mostly_small = make_summary(320, 0.5, memory=1, sizes=(0.1, 0.45, 0.7))
    _, first, second, _ = recommend([best, only_small, mostly_small], GOAL)
    assert first.endswith("for 2.0 points of mAP50, all of it on small objects.")
    assert second.endswith("for 10.0 points of mAP50, mostly on small objects.")


def test_time_is_weighed_as_memory_is() -> None:
    best = make_summary(640, 0.6, memory=2, seconds=600)
    faster = make_summary(416, 0.5, memory=3, seconds=300)
    smaller = make_summary(320, 0.4, memory=1, seconds=100)
    assert recommend([best, faster, smaller], GOAL)[1:3] == (
        "img 320 instead of 640 saves 50 % of the memory and 83 % of the time for 20.0 points of mAP50.",
        "img 416 instead of 640 saves 50 % of the time, with 50 % more memory, for 10.0 points of mAP50.",
    )


def test_smaller_is_better_with_minimize() -> None:
    summaries = [make_summary(640, 1.5, memory=4), make_summary(320, 1.75, memory=1)]
    best, cheaper, _ = recommend(summaries, Goal("mAP50", minimize=True))
    assert best.startswith("batch 16, img 640 has the best mAP50: 1.500")
    assert cheaper == "img 320 instead of 640 saves 75 % of the memory for 0.250 of mAP50."


def test_one_cell_and_none() -> None:
    assert recommend([], GOAL) == ()
    assert recommend([make_summary(640, 0.6)], GOAL) == (
        "batch 16, img 640 is the only cell that is done: 0.600 with 1 GiB in 1 min.",
    )


def test_the_cheaper_of_two_equal_cells_is_the_best() -> None:
    summaries = [make_summary(640, 0.6, memory=4), make_summary(320, 0.6, memory=1)]
    assert recommend(summaries, GOAL)[0].startswith("batch 16, img 320 has the best mAP50")


def test_of_equal_cells_the_faster_one_is_best_whatever_a_few_kilobytes_say() -> None:
    slow, fast = make_summary(320, 0.6, memory=1.0, seconds=90), make_summary(416, 0.6, memory=1.004, seconds=30)
    assert recommend([slow, fast], GOAL)[0].startswith("batch 16, img 416 has the best mAP50")


def test_a_cell_that_saves_as_much_as_another_one_and_is_no_better_is_not_mentioned() -> None:
    summaries = [
        make_summary(640, 0.6, memory=4, seconds=100),
        make_summary(320, 0.5, memory=1, seconds=50),
        make_summary(352, 0.49, memory=1.02, seconds=49.5),  # on the front of time by half a second
    ]
    assert len(recommend(summaries, GOAL)) == 3


def test_cells_that_have_learned_nothing_are_not_compared() -> None:
    summaries = [make_summary(640, 0.001, memory=4), make_summary(320, 0.0002)]
    assert recommend(summaries, GOAL)[1:] == ("No cell has learned anything yet: train longer.",)
