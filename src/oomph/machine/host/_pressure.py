"""Pressure stall information (PSI): how long tasks waited for memory or disk."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._fact import Fact, Unknown, unknown
from ._source import Source


@dataclass(frozen=True)
class Pressure:
    """Percentage of the last ten seconds in which some, or all, tasks waited."""

    memory_some: Fact[float]
    memory_full: Fact[float]
    disk_some: Fact[float]


def read_pressure(source: Source) -> Pressure:
    """Read `/proc/pressure`."""
    memory, disk = source.text("/proc/pressure/memory"), source.text("/proc/pressure/io")
    return Pressure(
        memory_some=_average(memory, "memory", "some"),
        memory_full=_average(memory, "memory", "full"),
        disk_some=_average(disk, "io", "some"),
    )


def no_pressure(reason: str, source: str) -> Pressure:
    """Return the pressure of a system that doesn't report it."""
    return Pressure(unknown(reason, source), unknown(reason, source), unknown(reason, source))


def _average(text: str | Unknown, resource: str, tasks: str) -> Fact[float]:
    path = f"/proc/pressure/{resource}"
    if isinstance(text, Unknown):
        return Fact(text, path)
    value = psi_value(text, tasks, "avg10")
    return Fact(Unknown("this kernel doesn't report it") if value is None else value, f"{path} {tasks} avg10")


def psi_value(text: str, tasks: str, field: str) -> float | None:
    """Return one value of a PSI file: of `tasks` ("some" or "full"), the `field` ("avg10", "total", …)."""
    match = re.search(rf"^{tasks} .*?\b{field}=(\d+(?:\.\d+)?)", text, re.MULTILINE)
    return None if match is None else float(match[1])
