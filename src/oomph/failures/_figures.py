"""Numbers out of an error's text: what was asked for, what there was, who held it."""

from __future__ import annotations

import re

from ..units import GIB, KIB, MIB, TIB

# torch and NumPy count in powers of 1024, also where torch's MPS allocator writes "GB".
_UNITS = {"": 1, "b": 1, "bytes": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}
_BEYOND = 2**63
_SIZE = r"([0-9][0-9.,]{0,30})\s{0,2}([KMGT]i?B|[Bb]ytes|B|kB)\b"

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern.replace("SIZE", _SIZE)))
    for name, pattern in (
        ("asked", r"(?:[Tt]r(?:ied|ying)|[Uu]nable|[Ff]ailed) to (?:allocate|mmap) SIZE"),
        ("asked", r"Out of memory (?:allocating|while trying to allocate) SIZE"),
        ("asked", r"(?:requested buffer of size|to extend \S+ to) SIZE"),
        ("asked", r"requested buffer of size ([0-9]{1,20})()"),
        ("capacity", r"total capaci?ty of SIZE"),
        ("capacity", r"; SIZE total capacity"),
        ("free", r"of which SIZE is free"),
        ("free", r"; SIZE free;"),
        ("process", r"this process has SIZE memory in use"),
        ("allocated", r"SIZE is allocated by PyTorch"),
        ("allocated", r"SIZE already allocated"),
        ("allocated", r"MPS allocated: SIZE"),
        ("reserved", r"SIZE (?:reserved in total by PyTorch|cached\))"),
        ("unallocated", r"SIZE is reserved by PyTorch but unallocated"),
        ("private_pools", r"with SIZE allocated in private pools"),
        ("allowed", r"SIZE allowed;"),
        ("allowed", r"max allowed: SIZE"),
        ("elsewhere", r"other allocations: SIZE"),
        ("resident", r"anon-rss:SIZE"),
        ("limit", r"limit SIZE"),
    )
)
_COUNTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("device", r"(?:\(GPU |\bGPU )([0-9]{1,3})(?:;| has)"),
        ("pid", r"(?:worker \(pid(?:\(s\))? |Killed process |PID |pid: )([0-9]{1,10})"),
        ("milliseconds", r"(?:ran for |Timed out waiting |wait timeout after )([0-9]{1,12}) ?(?:ms|milliseconds)"),
    )
)
_OTHER = re.compile(r"Process ([0-9]{1,10}) has " + _SIZE + " memory in use")


def read_figures(text: str) -> dict[str, float]:
    """The numbers that a message holds, sizes in bytes."""
    told = " ".join(text.split())
    found: dict[str, float] = {}
    for name, pattern in _PATTERNS:
        if name not in found and (match := pattern.search(told)):
            size = _bytes(match[1], match[2])
            if size is not None:
                found[name] = size
    for name, pattern in _COUNTS:
        if match := pattern.search(told):
            found[name] = int(match[1])
    if "unallocated" not in found and {"reserved", "allocated"} <= found.keys():
        found["unallocated"] = max(found["reserved"] - found["allocated"], 0)
    _others(told, found)
    return found


def _others(told: str, found: dict[str, float]) -> None:
    """Who else is on the GPU. Inside a container this process is listed under a number it doesn't know as its own."""
    held = [
        (size, int(match[1])) for match in _OTHER.finditer(told) if (size := _bytes(match[2], match[3])) is not None
    ]
    if "process" not in found and held:
        own = found.get("allocated", 0) + found.get("unallocated", 0)
        nearest = min(held, key=lambda one: abs(one[0] - own))
        if nearest[0] >= own * 0.99:
            found["process"] = nearest[0]
            held.remove(nearest)
    if held:
        largest = max(held)
        found |= {"others": sum(size for size, _ in held), "other_count": len(held), "other_pid": largest[1]}


def _bytes(number: str, unit: str) -> int | None:
    try:
        value = float(number.replace(",", "").rstrip("."))
    except ValueError:
        return None
    size = value * _UNITS.get(unit.lower(), _UNITS.get(unit[:1].lower(), 1))
    return round(size) if size < _BEYOND else None
