"""Comparison of variants: those that no other one beats, and the one to use, in words. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..units import format_size
from ._variants import Latency, VariantReport

ACCURACY, LOST = "mAP50-95", "mAP50"  # the score of the front, and the one that may not lose more than a limit
_SAME_SIZE = 0.01  # sizes that differ by a smaller fraction are equal: peak RSS varies from run to run
_DECIMALS = 3  # of scores that are compared
_ROUNDING = 1e-9  # of a loss in points
_LEARNED = 0.01  # scores of a detector that are smaller are noise


@dataclass(frozen=True)
class VariantLimits:
    """Limits that a recommended variant meets.

    Attributes:
        loss: points of mAP50 that it may lose against the first variant.
        latency: median in seconds; no limit if None.
        memory: inference memory in bytes; no limit if None.
    """

    loss: float = 1.0
    latency: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Recommendation:
    """The variant to use.

    Attributes:
        variant: its name; None if no variant meets the limits, or the scores say nothing.
        sentences: what it saves and costs, or which limits are not met.
    """

    variant: str | None
    sentences: tuple[str, ...]


def find_variant_front(variants: Sequence[VariantReport]) -> tuple[VariantReport, ...]:
    """Return the variants that no other one beats.

    A variant beats another one if it is better in mAP50-95, file size, inference memory or latency, and worse in none.
    Scores are compared with three decimals. Sizes within 1 % are equal, and so are latencies whose quartiles overlap.
    """
    return tuple(item for item in variants if not any(_beats(other, item) for other in variants))


def recommend_variant(variants: Sequence[VariantReport], limits: VariantLimits) -> Recommendation:
    """Recommend a variant: of those within the limits that no other one beats, the cheapest.

    The cheapest one has the smallest product of file size, inference memory and latency, so that each counts the same.

    Args:
        variants: the variants; losses and savings are relative to the first.
        limits: what the recommended variant may lose and need.
    """
    first = variants[0]
    if first.scores[LOST] < _LEARNED:
        sentence = (
            f"No recommendation: {first.name} has learned nothing on this data ({LOST} {first.scores[LOST]:.3f})."
        )
        return Recommendation(None, (sentence,))
    accurate = [item for item in variants if _loss(item, first) <= limits.loss + _ROUNDING]
    allowed = [item for item in accurate if _excess(item, limits) <= 1]
    if not allowed:
        return Recommendation(None, tuple(_closest_sentences(variants, accurate, limits)))
    front = find_variant_front(allowed) or allowed
    best = min(front, key=_cost)
    if best is first:
        return Recommendation(best.name, (_keep_sentence(best, allowed, limits),))
    equal = [item for item in front if item is not best and _is_equal(item, best)]
    return Recommendation(best.name, (_saving_sentence(best, first), *(_equal_sentence(item, best) for item in equal)))


def _beats(first: VariantReport, second: VariantReport) -> bool:
    signs = list(_comparisons(first, second))
    return max(signs) > 0 and min(signs) >= 0


def _is_equal(first: VariantReport, second: VariantReport) -> bool:
    return not any(_comparisons(first, second))


def _comparisons(first: VariantReport, second: VariantReport) -> Iterator[int]:
    """Yield 1 for each number in which the first variant is better than the second, -1 if worse, 0 if equal."""
    scores = [round(item.scores[ACCURACY], _DECIMALS) for item in (first, second)]
    yield (scores[0] > scores[1]) - (scores[0] < scores[1])
    yield _compare_sizes(first.file_bytes, second.file_bytes)
    yield _compare_sizes(first.memory, second.memory)
    yield _compare_latencies(first.latency, second.latency)


def _compare_sizes(first: int, second: int) -> int:
    if abs(first - second) <= _SAME_SIZE * max(first, second):
        return 0
    return 1 if first < second else -1


def _compare_latencies(first: Latency, second: Latency) -> int:
    return (first.upper < second.lower) - (second.upper < first.lower)


def _cost(variant: VariantReport) -> float:
    return float(variant.file_bytes) * variant.memory * variant.latency.median


def _loss(variant: VariantReport, first: VariantReport) -> float:
    """Return the lost points of mAP50."""
    return 100 * (first.scores[LOST] - variant.scores[LOST])


def _excess(variant: VariantReport, limits: VariantLimits) -> float:
    """Return the largest ratio of a cost to its limit; 0 without limits."""
    return max((value / limit for value, limit, *_ in _limited_costs(variant, limits)), default=0.0)


def _limited_costs(variant: VariantReport, limits: VariantLimits) -> Iterator[tuple[float, float, str, _Format]]:
    """Yield each cost that has a limit: its value, the limit, and how to write both."""
    if limits.latency is not None:
        yield variant.latency.median, limits.latency, "latency", _milliseconds
    if limits.memory is not None:
        yield float(variant.memory), float(limits.memory), "inference memory", format_size


_Format = Callable[[float], str]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def _saving_sentence(best: VariantReport, first: VariantReport) -> str:
    changes = [
        *_change("{} % smaller file", "{} % larger file", first.file_bytes, best.file_bytes),
        *_change("{} % less inference memory", "{} % more inference memory", first.memory, best.memory),
    ]
    is_same_latency = not _compare_latencies(best.latency, first.latency)
    if not is_same_latency:
        changes += _change("{} % less latency", "{} % more latency", first.latency.median, best.latency.median)
    noise = "; the latency is the same within the noise" if is_same_latency else ""
    points = f"{best.scores[LOST] - first.scores[LOST]:+.3f}".replace("-", "−")  # noqa: RUF001  a minus sign
    score = f"same {LOST}" if float(points[1:]) == 0 else f"{LOST} {points}"
    if not changes:
        return f"Recommended: {best.name}, as small and fast as {first.name} on this CPU, {score}."
    return f"Recommended: {best.name}: {_join(changes)} than {first.name} on this CPU, {score}{noise}."


def _change(less: str, more: str, before: float, after: float) -> list[str]:
    """Return a change in words; nothing if it rounds to 0 %."""
    percent = round(100 * abs(after / before - 1))
    return [(less if after < before else more).format(percent)] if percent else []


def _equal_sentence(item: VariantReport, best: VariantReport) -> str:
    return f"{item.name} is equal to {best.name} within the noise."


def _keep_sentence(first: VariantReport, allowed: Sequence[VariantReport], limits: VariantLimits) -> str:
    within = f"within the limits ({_describe(limits)})"
    if len(allowed) > 1:
        return f"Recommended: {first.name}: no other variant {within} is smaller and faster overall."
    return f"Recommended: {first.name}: no other variant is {within}."


def _closest_sentences(
    variants: Sequence[VariantReport], accurate: Sequence[VariantReport], limits: VariantLimits
) -> Iterator[str]:
    yield f"No variant is within the limits ({_describe(limits)})."
    closest = min(accurate, key=lambda item: _excess(item, limits))
    exceeded = [
        f"{form(value)} of {name} ({100 * (value / limit - 1):.2g} % too much)"
        for value, limit, name, form in _limited_costs(closest, limits)
        if value > limit
    ]
    yield f"The closest is {closest.name} with {_join(exceeded)}."
    small = [item for item in variants if _excess(item, limits) <= 1]
    if small:
        best = max(small, key=lambda item: item.scores[LOST])
        yield f"{best.name} is small and fast enough, but loses {_loss(best, variants[0]):.1f} points of {LOST}."


def _describe(limits: VariantLimits) -> str:
    costs = [
        *([] if limits.latency is None else [_milliseconds(limits.latency)]),
        *([] if limits.memory is None else [format_size(limits.memory)]),
    ]
    points = "1 point" if limits.loss == 1 else f"{limits.loss:g} points"
    return ", ".join([f"at most {points} of {LOST} lost", *costs])


def _join(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
