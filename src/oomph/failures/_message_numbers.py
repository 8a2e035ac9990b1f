"""Numbers in an error message: the request, the capacity, and the memory in use."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..units import GIB, KIB, MIB, TIB

# torch, NumPy and the kernel count in powers of 1024, also where they write "GB".
_UNITS = {"": 1, "b": 1, "bytes": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB, "p": TIB * KIB, "e": TIB * MIB}
_MAX_SIZE = 2**70
_SIZE = r"([0-9][0-9.,]{0,30})\s{0,2}([KMGTPE]i?B|[Bb]ytes|B|kB|kb|(?:mega|giga)bytes|[KMGT]i?\b)(?![A-Za-z])"
_BYTES = r"([0-9][0-9,]{0,30})()"

_SIZE_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern.replace("SIZE", _SIZE).replace("BYTES", _BYTES)))
    for name, pattern in (
        (
            "requested",
            r"(?:[Tt]r(?:ied|ying)|[Uu]nable|[Ff]ailed|[Cc]annot|[Cc]ould not) (?:to )?(?:allocate|mmap|alloc) SIZE",
        ),
        ("requested", r"Out of memory (?:allocating|while trying to allocate) SIZE"),
        ("requested", r"Out of memory (?:allocating|while trying to allocate) BYTES bytes"),
        ("requested", r"(?:requested buffer of size|to extend \S+ to) SIZE"),
        ("requested", r"requested buffer of size BYTES"),
        ("requested", r"Failed to allocate BYTES bytes"),
        ("requested", r"allocating BYTES bytes \(allocated so far"),
        ("requested", r"Attempting to allocate BYTES bytes"),
        ("requested", r"memory allocation of BYTES bytes failed"),
        ("requested", r"space Device stream \S+ size BYTES bytes"),
        ("requested", r"Requested memory: BYTES"),
        ("requested", r"requires more system memory \(SIZE\)"),
        ("requested", r"Requested {1,40}: SIZE"),
        ("requested", r"Error allocating SIZE"),
        ("requested", r"[Aa]llocating SIZE (?:on|of)"),
        ("requested", r"SIZE KV cache is needed"),
        ("requested", r"Invalid buffer size: SIZE"),
        ("requested", r"failed to allocate SIZE"),
        ("capacity", r"total capaci?ty of SIZE"),
        ("capacity", r"; SIZE total capacity"),
        ("capacity", r"Device limit {1,40}: SIZE"),
        ("capacity", r"Free memory on device[^()]{0,40}\([0-9.]+/SIZE\)"),
        ("free", r"of which SIZE is free"),
        ("free", r"; SIZE free;"),
        ("free", r"Free memory: BYTES"),
        ("free", r"than is available \(SIZE\)"),
        ("free", r"Free \(according to CUDA\): SIZE"),
        ("free", r"available memory is only SIZE"),
        ("free", r"available KV cache memory \(SIZE\)"),
        ("process", r"this process has SIZE memory in use"),
        ("allocated", r"SIZE is allocated by PyTorch"),
        ("allocated", r"SIZE already allocated"),
        ("allocated", r"MPS allocated: SIZE"),
        ("allocated", r"Currently allocated {1,40}: SIZE"),
        ("allocated", r"SIZE memory has been allocated"),
        ("allocated", r"\bInUse: {1,20}BYTES"),
        ("allocated", r"allocated so far: BYTES bytes"),
        ("reserved", r"SIZE reserved in total by PyTorch"),
        ("unallocated", r"SIZE is reserved by PyTorch but unallocated"),
        ("unallocated", r"; SIZE cached\)"),
        ("private_pools", r"with SIZE allocated in private pools"),
        ("allowed", r"SIZE allowed;"),
        ("allowed", r"max allowed: SIZE"),
        ("allowed", r"\bLimit: {1,20}BYTES"),
        ("allowed", r"limit set to: BYTES bytes"),
        ("allowed", r"maximum allowed buffer size of BYTES bytes"),
        ("allowed", r"memory fraction\)\s{0,40}: SIZE"),
        ("other_allocations", r"other allocations: SIZE"),
        ("rss", r"anon-rss:SIZE"),
        ("rss", r"VmRSS SIZE"),
        ("rss", r"\b[Mm]ax ?RSS[=: ]{1,3}SIZE"),
        ("used", r"\bwas running was SIZE"),
        ("used", r"job killed: \w*mem SIZE"),
        ("used", r"CPU Virtual Memory: {1,4}used = SIZE"),
        ("limit", r"\bwas running was [0-9.]+ ?GB / SIZE"),
        ("limit", r"[Ll]imit:? SIZE"),
        ("limit", r"memory limit of SIZE"),
        ("limit", r"MEMLIMIT SIZE"),
        ("limit", r"Limits: (?:\S+: \S+ ){0,4}memory: SIZE"),
    )
)
_COUNT_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("rank", r"\[rank([0-9]{1,5})\]"),
        ("device", r"(?:\(GPU |\bGPU |on device )([0-9]{1,3})(?:;| has|,| would)"),
        ("pid", r"(?:worker \(pid(?:\(s\))? |[Kk]ill(?:ed)? process |PID |pid: |pid=)([0-9]{1,10})"),
        ("milliseconds", r"(?:ran for |Timed out waiting |wait timeout after )([0-9]{1,12}) ?(?:ms|milliseconds)"),
        ("max_tokens", r"stored in KV cache \(([0-9]{1,9})\)"),
        ("max_tokens", r"estimated maximum model length is ([0-9]{1,9})"),
    )
)
_TENSORFLOW_START = re.compile(rf"totalMemory: {_SIZE} freeMemory: {_SIZE}")
_FREE_OF_TOTAL = re.compile(r"Free memory on device[^()]{0,40}\(([0-9.]+)/([0-9.]+) GiB\)")
_KIB_OF_LIMIT = re.compile(r"exceeded (?:job |step )?memory limit \(([0-9]{1,15}) > ([0-9]{1,15})\)")
_RAM_PERCENT = re.compile(r"CPU Virtual Memory: {1,4}used = [0-9.]+ GB, percent = ([0-9.]{1,6})%")
_OTHER_PROCESS = re.compile(r"Process ([0-9]{1,10}) has " + _SIZE + " memory in use")
_SHAPE = re.compile(r"(?:with )?shape ?[\[(]([0-9]{1,12}(?:[, x]{1,2}[0-9]{1,12}){0,7}),?[\])]")
_DTYPE = re.compile(r"(?:and (?:data )?type|dtype=?) ?<?(?:class ')?(?:numpy\.)?(\w+)")
_DTYPE_BYTES = {"float": 4, "half": 2, "double": 8, "bool": 1, "complex64": 8, "complex128": 16, "bfloat16": 2}


@dataclass(frozen=True)
class MessageNumbers:
    """The numbers in an error message; sizes are in bytes, and None means that the message doesn't say.

    Attributes:
        requested: The block that could not be allocated.
        capacity: The memory of the device.
        free: What the driver had left.
        process: All memory of this process on the device, with its CUDA context.
        allocated: Tensors of this process.
        reserved: Memory that the allocator of this process has from the driver.
        unallocated: The part of it that no tensor uses.
        private_pools: The part of it in private pools, such as those of CUDA graphs.
        allowed: The most that this process may use.
        other_allocations: Memory of this process outside the allocator (Apple).
        others: Memory of other processes that the message lists.
        other_count: How many they are.
        other_pid: The largest of them.
        rss: RAM of the process.
        used: RAM in use.
        limit: The limit of RAM.
        ram_percent: The last use of RAM in percent that the log contains.
        rank: The rank that speaks.
        device: The number of the GPU.
        pid: The process that was killed.
        milliseconds: How long a rank has waited.
        max_tokens: The longest sequence that fits.
        shape: The shape of the requested array; empty if the message doesn't say.
        dtype: Its dtype.
    """

    requested: float | None = None
    capacity: float | None = None
    free: float | None = None
    process: float | None = None
    allocated: float | None = None
    reserved: float | None = None
    unallocated: float | None = None
    private_pools: float | None = None
    allowed: float | None = None
    other_allocations: float | None = None
    others: float | None = None
    other_count: float | None = None
    other_pid: float | None = None
    rss: float | None = None
    used: float | None = None
    limit: float | None = None
    ram_percent: float | None = None
    rank: float | None = None
    device: float | None = None
    pid: float | None = None
    milliseconds: float | None = None
    max_tokens: float | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""

    @property
    def held_by_others(self) -> float | None:
        """Memory of the device that is neither free nor this process's; None if the message doesn't tell.

        If only the allocator's memory is stated, the CUDA context of this process is part of it.
        """
        if self.capacity is None or self.free is None:
            return self.others
        mine = self.process if self.process is not None else self.reserved
        if mine is None:
            return self.others
        return max(self.capacity - self.free - mine, self.others or 0, 0)

    def as_dict(self) -> dict[str, float]:
        """Return the numbers that the message states, by name."""
        pairs = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {name: value for name, value in pairs if isinstance(value, (int, float))}


def read_numbers(text: str, before: str = "") -> MessageNumbers:
    """Return the numbers in a message, and those of the machine in the text before it."""
    message = " ".join(text.split())
    numbers: dict[str, float] = {}
    for name, value in (*_sizes(message), *_counts(message), *_special(message), *_machine(" ".join(before.split()))):
        numbers.setdefault(name, value)
    shape, dtype = _read_shape(message)
    if shape and "requested" not in numbers:
        numbers["requested"] = math.prod(shape) * _dtype_bytes(dtype)
    _complete(numbers)
    numbers |= _other_processes(message, numbers)
    return MessageNumbers(**numbers, shape=shape, dtype=dtype)


def _sizes(message: str) -> Iterator[tuple[str, float]]:
    for name, pattern in _SIZE_PATTERNS:
        if match := pattern.search(message):
            size = parse_size(match[1], match[2])
            if size is not None:
                yield name, size


def _counts(message: str) -> Iterator[tuple[str, float]]:
    for name, pattern in _COUNT_PATTERNS:
        if match := pattern.search(message):
            yield name, int(match[1])


def _special(message: str) -> Iterator[tuple[str, float]]:
    """Yield numbers of messages that state several in one place."""
    if match := _FREE_OF_TOTAL.search(message):
        yield "free", float(match[1]) * GIB
        yield "reserved", 0  # vLLM has not allocated anything yet
    if match := _KIB_OF_LIMIT.search(message):
        yield "used", int(match[1]) * KIB
        yield "limit", int(match[2]) * KIB


def _machine(before: str) -> Iterator[tuple[str, float]]:
    """Yield what the log says about the machine before the failure."""
    if percents := _RAM_PERCENT.findall(before):
        yield "ram_percent", float(percents[-1].rstrip("."))
    if match := _TENSORFLOW_START.search(before):
        total, free = parse_size(match[1], match[2]), parse_size(match[3], match[4])
        if total and free:
            yield "capacity", total
            yield "others", max(total - free, 0)  # TensorFlow had not allocated anything yet


def _read_shape(message: str) -> tuple[tuple[int, ...], str]:
    match = _SHAPE.search(message)
    if match is None:
        return (), ""
    dtype = _DTYPE.search(message, match.end())
    return tuple(int(size) for size in re.findall(r"[0-9]+", match[1])), dtype[1] if dtype else ""


def _dtype_bytes(dtype: str) -> int:
    digits = re.search(r"[0-9]+$", dtype)
    return _DTYPE_BYTES.get(dtype) or (int(digits[0]) // 8 if digits else 4) or 1


def _complete(numbers: dict[str, float]) -> None:
    """Add what follows from two other numbers, and drop a cap that is none."""
    if "reserved" in numbers and "allocated" in numbers:
        numbers.setdefault("unallocated", max(numbers["reserved"] - numbers["allocated"], 0))
    elif "allocated" in numbers and "unallocated" in numbers:
        numbers["reserved"] = numbers["allocated"] + numbers["unallocated"]
    if "capacity" in numbers and numbers.get("allowed", 0) >= numbers["capacity"]:
        del numbers["allowed"]
    if not numbers.get("allocated", 0) * 0.99 <= numbers.get("process", 0) <= numbers.get("capacity", math.inf) * 1.5:
        numbers.pop("process", None)  # drivers of MIG and WSL report 0 or 2^64 bytes


def _other_processes(message: str, numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the memory of other processes on the GPU.

    In a container the driver lists this process under its pid on the host, so it looks like another process.
    """
    listed = [
        (size, int(match[1]))
        for match in _OTHER_PROCESS.finditer(message)
        if (size := parse_size(match[2], match[3])) is not None
    ]
    process: dict[str, float] = {}
    torch_bytes = numbers.get("reserved", 0)
    if "process" not in numbers and listed and torch_bytes:
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


def parse_size(number: str, unit: str) -> int | None:
    """Return the bytes of a size as a message prints it; None for a number that is none or too large."""
    try:
        value = float(number.replace(",", "").rstrip("."))
    except ValueError:
        return None
    size = value * _UNITS.get(unit.lower(), _UNITS.get(unit[:1].lower(), 1))
    return round(size) if size < _MAX_SIZE else None
