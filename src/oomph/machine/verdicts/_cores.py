"""Verdicts on processor cores."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import count_of
from .._machine import Machine
from ._fixes import add_cores
from ._verdict import DataLoaderConfig, Severity, Verdict

_CORES_PER_GPU = 4
_MIN_CORES = 2


def few_cores(machine: Machine, loader: DataLoaderConfig) -> Iterator[Verdict]:
    """Report fewer cores than the GPUs, the loader or training need."""
    usable = machine.cores.usable.known
    if usable is None:
        return
    gpus = len(machine.gpus)
    wanted = _CORES_PER_GPU * gpus
    source = (machine.cores.usable.source,)
    if gpus and usable < wanted:
        yield Verdict(
            Severity.RISKY,
            "few-cores",
            f"There {'is' if usable == 1 else 'are'} {_count_cores(usable)} for {count_of(gpus, 'GPU')}.",
            "The GPU will wait for image decoding.",
            (
                *add_cores(machine, wanted),
                f"Or use at most {count_of(max(int(usable) - 1, 1), 'loader worker')} and smaller images.",
            ),
            source,
        )
    elif usable < _MIN_CORES:
        yield Verdict(
            Severity.RISKY,
            "few-cores",
            f"Only {_count_cores(usable)} can be used.",
            "Data loading and training run one after the other.",
            add_cores(machine),
            source,
        )
    elif loader.workers > usable:
        yield Verdict(
            Severity.NOTE,
            "more-workers-than-cores",
            f"There are {count_of(loader.workers, 'loader worker')} for {_count_cores(usable)}.",
            "More workers than cores use memory without being faster.",
            (f"Use at most {count_of(max(int(usable), 1), 'worker')}.",),
            source,
        )


def _count_cores(number: float) -> str:
    """Format a number of cores, which may be a fraction: "1 core", "2.5 cores"."""
    return f"{number:.12g} core{'' if number == 1 else 's'}"
