"""Details of the selected process, one line each, most important first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from ...monitor import ProcessInfo, ProcessUse, RunProgress
from ...units import count_of, format_number, format_size, format_time
from .._text import duration, printable
from ._lines import clock
from ._tables import format_gpu_bytes, process_name

_MAX_CHILDREN = 8
_MAX_FINDINGS = 2
_STALE_SECONDS = 30.0


def process_details(
    use: ProcessUse, infos: Mapping[int, ProcessInfo], progress: RunProgress | None, trend: str
) -> Iterator[str]:
    """Yield lines about a process: its memory, the progress of its run, its command and its children."""
    yield printable(_memory_line(use, trend))
    if not use.members:
        yield "It runs outside of this container: only the driver lists it."
        return
    if progress is not None:
        yield printable(progress_line(progress))
    info = infos.get(use.pid, ProcessInfo())
    owner = f" by {info.user}" if info.user else ""
    started = f"started {clock(info.start_time)}{owner}: " if info.start_time is not None else ""
    yield printable(f"{started}{' '.join(info.command) or info.name}")
    if use.children:
        yield printable(_children_line(use, infos))


def progress_line(progress: RunProgress) -> str:
    """Return the progress of a run as one line."""
    parts = []
    if progress.step is not None:
        parts.append(f"step {progress.step}")
    if progress.loss is not None:
        parts.append(f"loss {format_number(progress.loss)}")
    if progress.step_seconds is not None:
        parts.append(f"{duration(progress.step_seconds)}/step")
    if progress.micro_batches is not None:
        parts.append(count_of(progress.micro_batches, "micro-batch", "micro-batches"))
    if progress.retries:
        parts.append(count_of(progress.retries, "retry", "retries"))
    silent = time.time() - progress.time
    if silent > _STALE_SECONDS:
        parts.append(f"silent for {format_time(silent)}")
    verdict = "; ".join(progress.findings[:_MAX_FINDINGS]) or "no problem found"
    return f"Record {progress.path.name}: {', '.join([*parts, verdict])}"


def _memory_line(use: ProcessUse, trend: str) -> str:
    parts = [f"{process_name(use)} {use.pid}"]
    if use.members:
        processes = f" in {count_of(len(use.members), 'process', 'processes')}" if use.children else ""
        parts.append(f"RAM {format_size(use.rss)}{processes}" + (f" ({trend})" if trend else ""))
    if use.gpu_bytes:
        parts.extend(f"GPU {index} {format_size(size)}" for index, size in use.gpu.items())
    elif use.gpu:
        parts.append(f"GPU memory {format_gpu_bytes(use)}")
    return ", ".join(parts)


def _children_line(use: ProcessUse, infos: Mapping[int, ProcessInfo]) -> str:
    largest = sorted(use.members[1:], key=lambda member: member.rss, reverse=True)
    children = [
        f"{infos.get(member.pid, ProcessInfo()).name} {member.pid} {format_size(member.rss)}"
        for member in largest[:_MAX_CHILDREN]
    ]
    more = f" and {use.children - _MAX_CHILDREN} more" if use.children > _MAX_CHILDREN else ""
    return f"children: {', '.join(children)}{more}"
