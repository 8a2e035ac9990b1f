"""Building the table from families of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...errors import UsageError
from ...machine import Target
from ...settings import PRECISIONS, Settings
from ._choices import Group, checkpointing_choices, groups_of, traced_precision, updated_as
from ._family import Family, FamilyRequest
from ._ranges import Ranges, find_ranges
from ._table import Device, PredictionTable, Steps, TableChoice
from ._update import UpdateRequest, UpdateTimes
from ._workers import LoadJob, Request, Result, predictor

_NOTHING = "none"  # the checkpointing that every Job can have


class _PassKey(NamedTuple):
    group: str
    precision: str
    checkpointing: str


class _UpdateKey(NamedTuple):
    precision: str
    optimizer: str


_Key = _PassKey | _UpdateKey


def build_prediction_table(
    load_job: LoadJob,
    settings: Settings,
    target: Target,
    *,
    budget: int | None = None,
    workers: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> PredictionTable:
    """Predict a Job for many settings around the given ones.

    Args:
        load_job: returns the Job; each worker calls it, so that it has to be picklable if there are several.
        settings: memory format, allocator, loss in chunks and offloading stay; the others vary.
        target: the device that the settings are for; other GPUs are offered beside it.
        budget: bytes of that device that may be used; by default all of its memory.
        workers: number of processes.
        progress: called with the number of predicted families of settings, and of all.

    Raises:
        UsageError: the Job can't be predicted.
    """
    with predictor(load_job, workers) as predict:
        ranges = find_ranges(predict, settings, groups_of(target))
        requests = {**dict(_pass_requests(ranges)), **dict(_update_requests(ranges))}
        results: dict[_Key, Result] = {}
        for key, result in zip(requests, predict(requests.values()), strict=True):
            results[key] = result
            if progress is not None:
                progress(len(results), len(requests))
    return _Assembly(ranges, results).table(target.memory if budget is None else budget)


def _pass_requests(ranges: Ranges) -> Iterator[tuple[_Key, Request]]:
    for group in ranges.groups:
        target = group.targets[0]
        for precision in dict.fromkeys(traced_precision(name, target) for name in PRECISIONS):
            alike = [name for name in PRECISIONS if traced_precision(name, target) == precision]
            timed = tuple((timed, name) for timed in group.targets for name in alike)
            for choice in checkpointing_choices(ranges.settings):
                settings = replace(ranges.settings, precision=precision, checkpointing=choice.value)
                request = FamilyRequest(
                    settings,
                    ranges.possible_optimizers,
                    target,
                    timed,
                    ranges.samples.values,
                    ranges.requested_sizes,
                )
                yield _PassKey(group.name, precision, choice.name), request


def _update_requests(ranges: Ranges) -> Iterator[tuple[_Key, Request]]:
    """Yield every update at the smallest point; those with the same weights are alike."""
    targets = [target for group in ranges.groups for target in group.targets]
    smallest = replace(ranges.settings, batch=ranges.samples.values[0], micro_batch=None, checkpointing=_NOTHING)
    if not ranges.sizes.problem:
        smallest = replace(smallest, size=ranges.sizes.values[0])
    for precision in PRECISIONS:
        if precision == updated_as(precision):
            alike = [name for name in PRECISIONS if updated_as(name) == precision]
            timed = tuple((target, name) for target in targets for name in alike)
            for name in ranges.possible_optimizers:
                settings = replace(smallest, precision=precision, optimizer=name)
                yield _UpdateKey(precision, name), UpdateRequest(settings, ranges.target, timed)


@dataclass(frozen=True)
class _Assembly:
    """The predicted families, put together."""

    ranges: Ranges
    results: Mapping[_Key, Result]

    def table(self, budget: int) -> PredictionTable:
        precisions = self._choices(PRECISIONS, self._has_precision)
        checkpointings = self._choices(
            checkpointing_choices(self.ranges.settings),
            lambda key, name: isinstance(key, _PassKey) and key.checkpointing == name,
        )
        groups, passes = self.ranges.groups, tuple(_pairs(precisions, checkpointings))
        updates = tuple(_pairs(precisions, self.ranges.optimizers))
        on_targets = [(group, target) for group in groups for target in group.targets]
        first = self._family(groups[0], PRECISIONS[0], _NOTHING)
        return PredictionTable(
            settings=self.ranges.settings,
            devices=tuple(self._devices(budget, first)),
            precisions=precisions,
            checkpointings=checkpointings,
            optimizers=self.ranges.optimizers,
            samples=self.ranges.samples,
            sizes=self.ranges.sizes,
            steps={
                f"{group.name}|{a}|{b}|{optimizer}": _steps(self._family(group, a, b), optimizer)
                for group in groups
                for a, b in passes
                for optimizer in self.ranges.possible_optimizers
            },
            seconds={
                f"{target.name}|{a}|{b}": self._family(group, a, b).seconds[target.name, a]
                for group, target in on_targets
                for a, b in passes
            },
            sum_seconds={
                f"{target.name}|{a}|{b}": self._family(group, a, b).sum_seconds[target.name, a]
                for group, target in on_targets
                for a, b in passes
            },
            update_seconds={
                f"{target.name}|{a}|{b}": self._update(a, b).running[target.name, a]
                for _, target in on_targets
                for a, b in updates
            },
            update_launching={f"{a}|{b}": self._update(a, b).launching for a, b in updates},
            overlaps=not self.ranges.target.is_cpu,
            is_derived=all(result.is_derived for result in self.results.values() if isinstance(result, Family)),
            assumptions=first.assumptions,
        )

    def _has_precision(self, key: _Key, name: str) -> bool:
        if isinstance(key, _UpdateKey) or key.checkpointing != _NOTHING:
            return False
        return key.precision == traced_precision(name, self.ranges.target)

    def _choices(
        self, choices: Sequence[str | TableChoice], matches: Callable[[_Key, str], bool]
    ) -> tuple[TableChoice, ...]:
        """Return choices with the reason why they are impossible, if their predictions failed."""
        named = [TableChoice(choice, choice) if isinstance(choice, str) else choice for choice in choices]
        return tuple(replace(choice, problem=self._problem(choice.name, matches)) for choice in named)

    def _problem(self, name: str, matches: Callable[[_Key, str], bool]) -> str:
        failed = ((key, family) for key, family in self.results.items() if isinstance(family, UsageError))
        return next((error.why for key, error in failed if matches(key, name)), "")

    def _devices(self, budget: int, first: Family) -> Iterator[Device]:
        for group in self.ranges.groups:
            for target in group.targets:
                memory = budget if target is self.ranges.target else target.memory
                yield Device(target.name, group.name, memory, first.outside if target.is_cpu else target.outside)

    def _family(self, group: Group, precision: str, checkpointing: str) -> Family:
        traced = traced_precision(precision, group.targets[0])
        family = self.results[_PassKey(group.name, traced, checkpointing)]
        assert isinstance(family, Family)  # noqa: S101  only possible choices are looked up
        return family

    def _update(self, precision: str, optimizer: str) -> UpdateTimes:
        update = self.results[_UpdateKey(updated_as(precision), optimizer)]
        assert isinstance(update, UpdateTimes)  # noqa: S101  only possible choices are looked up
        return update


def _steps(family: Family, optimizer: str) -> Steps:
    return Steps(
        family.alone[optimizer],
        family.accumulating[optimizer],
        *family.range,
        family.launching,
        family.launching_sums,
    )


def _pairs(first: Sequence[TableChoice], second: Sequence[TableChoice]) -> Iterator[tuple[str, str]]:
    yield from ((a.name, b.name) for a in first for b in second if not a.problem and not b.problem)
