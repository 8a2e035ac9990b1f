"""The values of the sliders, found by predicting their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...errors import UsageError
from ...machine import Target
from ...settings import Settings, Size
from .._micro_batch import fitting_samples
from ._choices import Group, last_batch, sample_values, size_ends, size_values
from ._family import Family, FamilyRequest
from ._table import Axis, TableChoice
from ._workers import Predict, Result

_GIVEN = "given"
_OPTIMIZERS = (_GIVEN, "fused", "8bit")  # the others need no less memory and no less time than a fused update
_SEVERAL = 4  # samples, if the requested batch is smaller


@dataclass(frozen=True)
class Ranges:
    """What the table covers.

    Attributes:
        settings: what all positions share.
        groups: the targets.
        samples: values of batch and micro-batch.
        sizes: values of the size.
        optimizers: implementations of the update, with the reasons why some are impossible.
    """

    settings: Settings
    groups: tuple[Group, ...]
    samples: Axis
    sizes: Axis
    optimizers: tuple[TableChoice, ...]

    @property
    def target(self) -> Target:
        """The target of the plan."""
        return self.groups[0].targets[0]

    @property
    def possible_optimizers(self) -> tuple[str, ...]:
        """The implementations of the update that the Job can have."""
        return tuple(choice.name for choice in self.optimizers if not choice.problem)

    @property
    def requested_sizes(self) -> tuple[int, ...]:
        """The sizes of a FamilyRequest: none if the size stays."""
        return () if self.sizes.problem else self.sizes.values


def find_ranges(predict: Predict, settings: Settings, groups: tuple[Group, ...]) -> Ranges:
    """Find what the Job can run with: sizes, samples and implementations of the update.

    Raises:
        UsageError: the Job can't be predicted at all.
    """
    target, requested, several = groups[0].targets[0], settings.size, max(settings.batch, _SEVERAL)
    ends = size_ends(requested) if isinstance(requested, int) and requested else (requested, requested)
    optimizers = tuple(dict.fromkeys((*_OPTIMIZERS, settings.optimizer)))
    points = {
        **{name: (several, requested, name) for name in optimizers},
        "one sample": (1, requested, _GIVEN),
        "smallest": (1, ends[0], _GIVEN),
        "small": (2, ends[0], _GIVEN),
        "large": (several, ends[1], _GIVEN),
    }
    requests = [_request(settings, target, *point) for point in points.values()]
    families = dict(zip(points, predict(requests), strict=True))
    given, one = families[_GIVEN], families["one sample"]
    if isinstance(given, UsageError):
        raise given
    assert isinstance(given, Family)  # noqa: S101  as requested
    sizes = _sizes(requested, families)
    smallest = families["smallest" if sizes.values[0] == ends[0] else "one sample"]
    planned = {settings.batch, settings.micro_batch or settings.batch}
    first = 2 if isinstance(smallest, UsageError) and min(planned) > 1 else 1
    last = last_batch(settings.batch, _fitting(given, one, several, groups))
    return Ranges(
        settings=settings,
        groups=groups,
        samples=Axis(sample_values(first, last, planned)),
        sizes=sizes,
        optimizers=tuple(_optimizer(name, families[name]) for name in optimizers),
    )


def _request(settings: Settings, target: Target, samples: int, size: Size, optimizer: str) -> FamilyRequest:
    plain = replace(settings, batch=samples, micro_batch=None, size=size, checkpointing="none", offload=())
    return FamilyRequest(plain, (optimizer,), target, timed=(), samples=(samples,))


def _optimizer(name: str, result: Result) -> TableChoice:
    return TableChoice(name, name, result.why if isinstance(result, UsageError) else "")


def _sizes(requested: Size, families: Mapping[str, Result]) -> Axis:
    if not isinstance(requested, int):
        return Axis((0,), f"the size is a height and a width, {requested[0]}x{requested[1]}")
    if not requested:
        return Axis((0,), "the plan was made without a size")
    small, large = families["small"], families["large"]
    first = requested if isinstance(small, UsageError) else size_ends(requested)[0]
    last = requested if isinstance(large, UsageError) else size_ends(requested)[1]
    if first == last:
        why = f" ({large.why})" if isinstance(large, UsageError) else ""
        return Axis((requested,), f"the Job runs with no other size{why}")
    return Axis(size_values(first, last, requested))


def _fitting(several: Family, one: Result, samples: int, groups: Iterable[Group]) -> int:
    """Return the samples that fill the largest target, by the line through two points."""
    memory = max(target.memory for group in groups for target in group.targets)
    start = (1, one.alone[_GIVEN][0][0].reserved) if isinstance(one, Family) else (0, 0)
    return fitting_samples(start, (samples, several.alone[_GIVEN][0][0].reserved), memory)
