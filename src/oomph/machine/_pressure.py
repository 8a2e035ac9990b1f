"""Pressure stall information: the share of time that work stood still for want of memory or disk."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._fact import Fact, Unknown, unknown
from ._source import Source


@dataclass(frozen=True)
class Pressure:
    """Percent of the last ten seconds in which some, or all, tasks waited."""

    memory_some: Fact[float]
    memory_full: Fact[float]
    disk_some: Fact[float]


def read_pressure(source: Source) -> Pressure:
    """Read `/proc/pressure`."""
    return Pressure(
        memory_some=_average(source, "memory", "some"),
        memory_full=_average(source, "memory", "full"),
        disk_some=_average(source, "io", "some"),
    )


def no_pressure(why: str, source: str) -> Pressure:
    """The pressure of a system that doesn't measure it."""
    return Pressure(unknown(why, source), unknown(why, source), unknown(why, source))


def _average(source: Source, resource: str, kind: str) -> Fact[float]:
    path = f"/proc/pressure/{resource}"
    text = source.text(path)
    if isinstance(text, Unknown):
        return Fact(text, path)
    match = re.search(rf"^{kind} avg10=(\d+\.\d+)", text, re.MULTILINE)
    return Fact(float(match[1]) if match else Unknown("this kernel doesn't say"), f"{path} {kind} avg10")
