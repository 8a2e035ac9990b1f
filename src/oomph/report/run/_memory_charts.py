"""Charts of GPU memory and of host memory over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._chart import Chart, Limit
from ._run_data import RankRecord, RunData
from ._series import Series, points_of

_HOST_SERIES = (
    ("rss", "process tree (RSS)"),
    ("pss", "process tree (PSS)"),
    ("main_rss", "main process (RSS)"),
    ("cgroup_used", "cgroup"),
)
_HOST_LIMITS = (("cgroup_limit", "cgroup limit"), ("ram_total", "RAM of the machine"))


def has_several(runs: Sequence[RunData]) -> bool:
    """Return True if a chart compares runs or ranks: then it has only their main series."""
    return len(runs) > 1 or any(len(run.ranks) > 1 for run in runs)


def prefix(runs: Sequence[RunData], run: RunData, rank: RankRecord) -> str:
    """Return what distinguishes the series of a rank from those of others."""
    parts = [run.name] if len(runs) > 1 else []
    parts += [f"rank {rank.rank}"] if len(run.ranks) > 1 else []
    return f"{', '.join(parts)}: " if parts else ""


def ranks_of(runs: Sequence[RunData]) -> Iterator[tuple[int, RunData, RankRecord]]:
    """Yield all ranks with the number of their color: one for each run, or for each rank of a single run."""
    for number, run in enumerate(runs):
        for index, rank in enumerate(run.ranks):
            yield number if len(runs) > 1 else index, run, rank


def series_of(
    run: RunData, rank: RankRecord, label: str, points: tuple[list[float], list[float]], **style: Any
) -> Series | None:
    """Return a series with times since the start of its run; None if it has no points."""
    if not points[0]:
        return None
    # The clock of a machine may be set back during a run.
    ordered = sorted(zip(*points, strict=True), key=lambda point: point[0])
    breaks = tuple(start - run.start for start in rank.record.start_times[1:])
    times, values = [at - run.start for at, _ in ordered], [value for _, value in ordered]
    return Series(label, times, values, start=run.start, breaks=breaks, **style)


@dataclass(frozen=True)
class _GpuUse:
    """What the Record of a rank says about one GPU: lines of torch's allocator and of the driver, with their times."""

    group: int
    run: RunData
    rank: RankRecord
    allocator: list[tuple[float, Mapping[str, Any]]]
    driver: list[tuple[float, Mapping[str, Any]]]


def gpu_charts(runs: Sequence[RunData]) -> Iterator[Chart]:
    """Yield one chart for each GPU that a run used; for each one that was seen if torch used none."""
    uses = [(index, use) for group, run, rank in ranks_of(runs) for index, use in _gpu_uses(group, run, rank)]
    by_torch = [(index, use) for index, use in uses if use.allocator]
    for index in sorted({index for index, _ in by_torch or uses}):
        users = [use for other, use in by_torch or uses if other == index]
        series = tuple(line for line in _gpu_series(runs, users) if line is not None)
        if series:
            name = _gpu_name(users)
            title = f"Memory of GPU {index}" + (f" ({name})" if name else "")
            yield Chart(f"gpu-{index}-memory", title, "bytes", series, tuple(_gpu_limits(runs, users)))


def _gpu_uses(group: int, run: RunData, rank: RankRecord) -> Iterator[tuple[int, _GpuUse]]:
    driver = _lines_by_device(rank, "gpus", "index")
    allocator = _lines_by_device(rank, "torch", "device")
    in_use = [index for index, lines in driver.items() if any(gpu.get("tree_used") for _, gpu in lines)]
    # CUDA_VISIBLE_DEVICES numbers torch's devices anew.
    renumbered = len(in_use) == len(allocator) and sorted(allocator) != sorted(in_use)
    numbers = dict(zip(sorted(allocator), sorted(in_use), strict=True)) if renumbered else {}
    devices = {numbers.get(device, device): lines for device, lines in allocator.items()}
    for index in sorted({*driver, *devices}):
        yield index, _GpuUse(group, run, rank, devices.get(index, []), driver.get(index, []))


def _lines_by_device(rank: RankRecord, field: str, key: str) -> dict[int, list[tuple[float, Mapping[str, Any]]]]:
    lines: dict[int, list[tuple[float, Mapping[str, Any]]]] = {}
    for sample in rank.record.samples:
        for entry in sample.get(field, ()):
            lines.setdefault(int(entry[key]), []).append((float(sample["t"]), entry))
    return lines


def _gpu_series(runs: Sequence[RunData], users: Sequence[_GpuUse]) -> Iterator[Series | None]:
    """Yield what torch and the driver say; if several ranks or runs used the GPU, only what torch says."""
    several = len(users) > 1
    for use in users:
        start = prefix(runs, use.run, use.rank)
        kinds = [("allocated", use.allocator, "allocated by torch"), ("reserved", use.allocator, "reserved by torch")]
        if not several or not use.allocator:
            kinds += [("tree_used", use.driver, "this run"), ("others_used", use.driver, "other processes")]
            if not any("tree_used" in gpu for _, gpu in use.driver):
                kinds.append(("used", _with_used(use.driver), "all processes"))
        for number, (field, lines, label) in enumerate(kinds):
            style = {"group": use.group, "dash": "dash" if number % 2 else "solid"} if several else {"group": number}
            points = [(at, float(line[field])) for at, line in lines if field in line]
            columns = [at for at, _ in points], [value for _, value in points]
            yield series_of(use.run, use.rank, f"{start}{label}", columns, **style)


def _with_used(lines: Sequence[tuple[float, Mapping[str, Any]]]) -> list[tuple[float, Mapping[str, Any]]]:
    return [(at, {"used": gpu["total"] - gpu["free"]}) for at, gpu in lines]


def _gpu_name(users: Sequence[_GpuUse]) -> str:
    return next((str(gpu["name"]) for use in users for _, gpu in use.driver[:1] if "name" in gpu), "")


def _gpu_limits(runs: Sequence[RunData], users: Sequence[_GpuUse]) -> Iterator[Limit]:
    for number, run in enumerate(runs):
        start, group = (f"{run.name}: ", number) if len(runs) > 1 else ("", None)
        if run.uses_gpu and run.predicted.peak:
            yield Limit(f"{start}predicted peak of allocated", run.predicted.peak, group)
        if run.uses_gpu and run.predicted.budget:
            yield Limit(f"{start}budget", run.predicted.budget, group)
    for total in sorted({float(gpu["total"]) for use in users for _, gpu in use.driver[:1]}):
        yield Limit("memory of the card", total)


def ram_charts(runs: Sequence[RunData]) -> Iterator[Chart]:
    """Yield the charts of host memory: the process tree, swap and its rate, /dev/shm."""
    yield from _chart("ram", "RAM of the process tree", "bytes", _ram_series(runs), tuple(_ram_limits(runs)))
    swap = _host_series(runs, (("swap_used", "swap in use"),))
    yield from _chart("swap", "Swap or page file of the machine", "bytes", swap, _limits(runs, "swap_total", "swap"))
    rates = _host_series(runs, (("swap_in_rate", "read from swap"), ("swap_out_rate", "written to swap")))
    yield from _chart("swap-rate", "Swap rate of the machine", "bytes/s", rates, ())
    shm = _host_series(runs, (("shm_used", "shared memory in use"),))
    yield from _chart("shm", "Shared memory (/dev/shm)", "bytes", shm, _limits(runs, "shm_total", "size of /dev/shm"))


def _chart(
    name: str,
    title: str,
    unit: str,
    series: Iterable[Series | None],
    limits: tuple[Limit, ...],
) -> Iterator[Chart]:
    """Yield a chart unless it is empty or all its values are 0."""
    lines = tuple(line for line in series if line is not None)
    if any(line.maximum > 0 for line in lines):
        yield Chart(name, title, unit, lines, limits)


def _ram_series(runs: Sequence[RunData]) -> Iterator[Series | None]:
    fields = _HOST_SERIES[:1] if has_several(runs) else _HOST_SERIES
    return _host_series(runs, fields, every_rank=True)


def _host_series(
    runs: Sequence[RunData], fields: Sequence[tuple[str, str]], *, every_rank: bool = False
) -> Iterator[Series | None]:
    """Yield series of samples; what belongs to the machine is read from the first rank's Record."""
    several = has_several(runs)
    for group, run, rank in ranks_of(runs):
        if rank is not run.ranks[0] and not every_rank:
            continue
        start = prefix(runs, run, rank) if every_rank or len(runs) > 1 else ""
        for number, (field, label) in enumerate(fields):
            style = {"group": group, "dash": "dash" if number % 2 else "solid"} if several else {"group": number}
            yield series_of(run, rank, f"{start}{label}", points_of(rank.record.samples, field), **style)


def _ram_limits(runs: Sequence[RunData]) -> Iterator[Limit]:
    for number, run in enumerate(runs):
        start, group = (f"{run.name}: ", number) if len(runs) > 1 else ("", None)
        if run.predicted.host:
            yield Limit(f"{start}predicted for the process", run.predicted.host, group)
        if run.predicted.budget and not run.uses_gpu:
            yield Limit(f"{start}budget", run.predicted.budget, group)
    for field, label in _HOST_LIMITS:
        yield from _limits(runs, field, label)


def _limits(runs: Sequence[RunData], field: str, label: str) -> tuple[Limit, ...]:
    """Return the last value of a limit in each run, each value once."""
    values = {}
    for run in runs:
        value = next((sample[field] for sample in reversed(run.record.samples) if field in sample), None)
        if value:
            values[float(value)] = Limit(label, float(value))
    return tuple(values.values())
