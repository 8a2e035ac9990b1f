"""Numbers in an error message: the request, the capacity, and the memory in use."""

from __future__ import annotations

import re

from ..units import GIB, KIB, MIB, TIB

# torch and NumPy count in powers of 1024, also where torch's MPS allocator writes "GB".
_UNITS = {"": 1, "b": 1, "bytes": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}
_MAX_SIZE = 2**63
_SIZE = r"([0-9][0-9.,]{0,30})\s{0,2}([KMGT]i?B|[Bb]ytes|B|kB)\b"

_SIZE_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern.replace("SIZE", _SIZE)))
    for name, pattern in (
        ("requested", r"(?:[Tt]r(?:ied|ying)|[Uu]nable|[Ff]ailed) to (?:allocate|mmap) SIZE"),
        ("requested", r"Out of memory (?:allocating|while trying to allocate) SIZE"),
        ("requested", r"(?:requested buffer of size|to extend \S+ to) SIZE"),
        ("requested", r"requested buffer of size ([0-9]{1,20})()"),
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
        ("other_allocations", r"other allocations: SIZE"),
        ("rss", r"anon-rss:SIZE"),
        ("limit", r"limit SIZE"),
    )
)
_COUNT_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("device", r"(?:\(GPU |\bGPU )([0-9]{1,3})(?:;| has)"),
        ("pid", r"(?:worker \(pid(?:\(s\))? |Killed process |PID |pid: )([0-9]{1,10})"),
        ("milliseconds", r"(?:ran for |Timed out waiting |wait timeout after )([0-9]{1,12}) ?(?:ms|milliseconds)"),
    )
)
_OTHER_PROCESS = re.compile(r"Process ([0-9]{1,10}) has " + _SIZE + " memory in use")


def read_numbers(text: str) -> dict[str, float]:
    """Return the numbers in a message by name; sizes are in bytes."""
    message = " ".join(text.split())
    numbers: dict[str, float] = {}
    for name, pattern in _SIZE_PATTERNS:
        if name not in numbers and (match := pattern.search(message)):
            size = _parse_size(match[1], match[2])
            if size is not None:
                numbers[name] = size
    for name, pattern in _COUNT_PATTERNS:
        if match := pattern.search(message):
            numbers[name] = int(match[1])
    if "unallocated" not in numbers and {"reserved", "allocated"} <= numbers.keys():
        numbers["unallocated"] = max(numbers["reserved"] - numbers["allocated"], 0)
    return numbers | _other_processes(message, numbers)


def _other_processes(message: str, numbers: dict[str, float]) -> dict[str, float]:
    """Return the memory of other processes on the GPU.

    In a container the driver lists this process under its pid on the host, so it looks like another process.
    """
    listed = [
        (size, int(match[1]))
        for match in _OTHER_PROCESS.finditer(message)
        if (size := _parse_size(match[2], match[3])) is not None
    ]
    process: dict[str, float] = {}
    if "process" not in numbers and listed:
        torch_bytes = numbers.get("allocated", 0) + numbers.get("unallocated", 0)
        nearest = min(listed, key=lambda entry: abs(entry[0] - torch_bytes))
        if nearest[0] >= torch_bytes * 0.99:
            process["process"] = nearest[0]
            listed.remove(nearest)
    if not listed:
        return process
    return {
        **process,
        "others": sum(size for size, _ in listed),
        "other_count": len(listed),
        "other_pid": max(listed)[1],
    }


def _parse_size(number: str, unit: str) -> int | None:
    try:
        value = float(number.replace(",", "").rstrip("."))
    except ValueError:
        return None
    size = value * _UNITS.get(unit.lower(), _UNITS.get(unit[:1].lower(), 1))
    return round(size) if size < _MAX_SIZE else None
