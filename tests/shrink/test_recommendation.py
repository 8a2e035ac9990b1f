from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from oomph.shrink import Latency, VariantLimits, VariantReport, find_variant_front, recommend_variant
from oomph.units import MIB


def variant(name: str, file: float, memory: float, milliseconds: float, score: float) -> VariantReport:
    """Return a variant with sizes in MiB, quartiles 2 % around the median, and a mAP50-95 of half the mAP50."""
    median = milliseconds / 1000
    latency = Latency(median, 0.98 * median, 1.02 * median, runs=40, threads=1)
    scores = {"mAP50": score, "mAP50-95": score / 2}
    return VariantReport(name, name, int(file * MIB), 1000, int(memory * MIB), latency, scores)


BEFORE = variant("best.pt", 8, 300, 40, 0.51)
EXPORTED = variant("best.onnx", 8, 100, 20, 0.51)
INT8 = variant("best-int8.onnx", 2, 90, 16, 0.506)
TINY = variant("tiny.pt", 1, 60, 5, 0.4)


def front(*variants: VariantReport) -> list[str]:
    return [item.name for item in find_variant_front(variants)]


def sentences(*variants: VariantReport, limits: VariantLimits | None = None) -> tuple[str, ...]:
    return recommend_variant(variants, limits or VariantLimits()).sentences


def test_the_front_is_what_no_other_variant_beats() -> None:
    assert front(BEFORE, EXPORTED, INT8, TINY) == ["best.onnx", "best-int8.onnx", "tiny.pt"]


@pytest.mark.parametrize(
    "better",
    [
        replace(INT8, scores={"mAP50": 0.506, "mAP50-95": 0.254}),
        replace(INT8, file_bytes=int(1.9 * MIB)),
        replace(INT8, memory=88 * MIB),
        replace(INT8, latency=Latency(0.015, 0.0145, 0.0155, 40, 1)),
    ],
)
def test_one_better_number_is_enough_to_beat_an_otherwise_equal_variant(better: VariantReport) -> None:
    assert find_variant_front([INT8, better]) == (better,)


@pytest.mark.parametrize(
    "equal",
    [
        replace(INT8, scores={"mAP50": 0.506, "mAP50-95": 0.2533}),
        replace(INT8, file_bytes=int(1.99 * MIB)),
        replace(INT8, memory=int(89.5 * MIB)),
        replace(INT8, latency=Latency(0.0155, 0.0153, 0.0158, 40, 1)),  # the quartiles overlap
    ],
)
def test_differences_within_the_noise_beat_nothing(equal: VariantReport) -> None:
    assert len(find_variant_front([INT8, equal])) == 2


def test_the_front_does_not_depend_on_the_order() -> None:
    for order in itertools.permutations((BEFORE, EXPORTED, INT8, TINY)):
        assert set(front(*order)) == {"best.onnx", "best-int8.onnx", "tiny.pt"}


def test_the_recommendation_says_what_is_saved_and_lost() -> None:
    recommendation = recommend_variant((BEFORE, EXPORTED, INT8, TINY), VariantLimits())
    assert recommendation.variant == "best-int8.onnx"
    assert recommendation.sentences == (
        (
            "Recommended: best-int8.onnx: 75 % smaller file, 70 % less inference memory and 60 % less latency than "
            "best.pt on this CPU, mAP50 −0.004."  # noqa: RUF001  a minus sign
        ),
    )


def test_what_grows_is_said_too() -> None:
    slow = replace(INT8, latency=Latency(0.05, 0.049, 0.051, 40, 1), memory=330 * MIB)
    assert sentences(BEFORE, slow) == (
        (
            "Recommended: best-int8.onnx: 75 % smaller file, 10 % more inference memory and 25 % more latency than "
            "best.pt on this CPU, mAP50 −0.004."  # noqa: RUF001
        ),
    )


def test_a_latency_within_the_noise_is_no_saving() -> None:
    (sentence,) = sentences(BEFORE, replace(INT8, latency=Latency(0.039, 0.037, 0.0395, 40, 1)))
    assert "less latency" not in sentence
    assert sentence.endswith("mAP50 −0.004; the latency is the same within the noise.")  # noqa: RUF001


def test_equal_variants_are_named() -> None:
    twin = replace(INT8, name="qat.onnx", latency=Latency(0.0162, 0.0159, 0.0165, 40, 1))
    assert sentences(BEFORE, INT8, twin)[1:] == ("qat.onnx is equal to best-int8.onnx within the noise.",)


def test_a_larger_loss_can_be_allowed() -> None:
    assert recommend_variant((BEFORE, INT8, TINY), VariantLimits(loss=11)).variant == "tiny.pt"
    assert recommend_variant((BEFORE, INT8, TINY), VariantLimits(loss=0)).variant == "best.pt"


def test_a_loss_of_exactly_the_limit_is_allowed() -> None:
    assert recommend_variant((BEFORE, variant("x.pt", 1, 60, 5, 0.5)), VariantLimits(loss=1)).variant == "x.pt"


def test_the_first_is_kept_if_the_others_lose_too_much_or_save_nothing() -> None:
    assert sentences(BEFORE, TINY) == (
        "Recommended: best.pt: no other variant is within the limits (at most 1 point of mAP50 lost).",
    )
    large = variant("large.pt", 30, 400, 90, 0.52)
    assert sentences(BEFORE, large) == (
        (
            "Recommended: best.pt: no other variant within the limits (at most 1 point of mAP50 lost) is smaller and "
            "faster overall."
        ),
    )


def test_a_more_accurate_variant_beats_one_that_costs_the_same() -> None:
    better = variant("better.pt", 8, 300, 40, 0.53)
    assert sentences(BEFORE, better) == (
        "Recommended: better.pt, as small and fast as best.pt on this CPU, mAP50 +0.020.",
    )


def test_limits_choose_among_those_that_meet_them() -> None:
    limits = VariantLimits(loss=20, latency=0.010)
    assert recommend_variant((BEFORE, EXPORTED, INT8, TINY), limits).variant == "tiny.pt"


def test_the_closest_is_named_if_no_variant_meets_the_limits() -> None:
    limits = VariantLimits(latency=0.010, memory=75 * MIB)
    recommendation = recommend_variant((BEFORE, EXPORTED, INT8, TINY), limits)
    assert recommendation.variant is None
    assert recommendation.sentences == (
        "No variant is within the limits (at most 1 point of mAP50 lost, 10 ms, 75 MiB).",
        (
            "The closest is best-int8.onnx with 16 ms of latency (60 % too much) and 90 MiB of inference memory "
            "(20 % too much)."
        ),
        "tiny.pt is small and fast enough, but loses 11.0 points of mAP50.",
    )


def test_only_exceeded_limits_are_named() -> None:
    limits = VariantLimits(latency=0.010, memory=75 * MIB)
    (_, closest) = sentences(BEFORE, replace(INT8, memory=70 * MIB), limits=limits)
    assert closest == "The closest is best-int8.onnx with 16 ms of latency (60 % too much)."


def test_an_untrained_detector_gives_no_recommendation() -> None:
    untrained = [replace(item, scores={"mAP50": 0.001, "mAP50-95": 0.0}) for item in (BEFORE, INT8)]
    recommendation = recommend_variant(untrained, VariantLimits())
    assert recommendation.variant is None
    assert recommendation.sentences == ("No recommendation: best.pt has learned nothing on this data (mAP50 0.001).",)
