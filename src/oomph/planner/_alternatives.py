"""Other settings than the planned ones, and why they were not chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..units import format_size
from ._plan import Alternative
from ._search import Candidate, Winner

_COUNT = 6
_SAME = 0.01
_BEARABLE = 4.0  # times as slow; nobody would choose what is slower


def alternatives(winner: Winner, budget: int) -> tuple[Alternative, ...]:
    """Return what people would try, and points on the front of memory against speed, from little memory to much."""
    bearable = [
        candidate for candidate in winner.candidates if candidate.seconds <= _BEARABLE * winner.candidate.seconds
    ]
    chosen = [*_usual(winner, budget), *_spread(_front(bearable), _COUNT)]
    unique = {candidate.settings: candidate for candidate in chosen if candidate != winner.candidate}
    return tuple(
        Alternative(
            candidate.settings,
            int(winner.correction.need(candidate)),
            candidate.seconds,
            _why_not(candidate, winner, budget),
        )
        for candidate in sorted(unique.values(), key=lambda candidate: candidate.memory)
    )


def _usual(winner: Winner, budget: int) -> Iterator[Candidate]:
    """Yield the whole batch, the largest micro-batch that fits without recomputation, and everything recomputed."""
    plain = [candidate for candidate in winner.candidates if candidate.settings.checkpointing == "none"]
    yield plain[0]
    fitting = [candidate for candidate in plain if winner.correction.need(candidate) <= budget]
    if fitting:
        yield max(fitting, key=lambda candidate: max(candidate.settings.micro_batch_sizes))
    whole = [
        candidate for candidate in winner.candidates if candidate.settings.micro_batch == plain[0].settings.micro_batch
    ]
    yield min(whole, key=lambda candidate: candidate.memory)


def _front(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that no other one beats in both memory and time, fastest first."""
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: (candidate.seconds, candidate.memory)):
        if not front or candidate.memory < front[-1].memory:
            front.append(candidate)
    return front


def _spread(front: list[Candidate], count: int) -> list[Candidate]:
    """Return at most this many candidates, from the fastest to the smallest."""
    if len(front) <= count:
        return front
    return [front[round(index * (len(front) - 1) / (count - 1))] for index in range(count)]


def _why_not(candidate: Candidate, winner: Winner, budget: int) -> str:
    need = winner.correction.need(candidate)
    if need > budget:
        return f"may need up to {format_size(need)}, above the budget of {format_size(budget)}"
    slower = candidate.seconds / winner.candidate.seconds - 1
    if slower > _SAME:
        return f"{100 * slower:.0f} % slower"
    return "not faster, with more changes"
