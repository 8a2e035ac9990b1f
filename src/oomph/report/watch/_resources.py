"""The kinds of memory in a sample, each with its limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...units import count_of, format_rate, format_size

Sample = Mapping[str, Any]


@dataclass(frozen=True)
class MemoryRow:
    """One kind of memory in the view: `used` of `limit`, with a note; `key` is its name in the history."""

    key: str
    name: str
    used: float
    limit: float | None = None
    note: str = ""


def memory_rows(sample: Sample, *, page_file: bool = False, root: int | None = None) -> Iterator[MemoryRow]:
    """Yield the kinds of memory of a sample, most important first.

    Args:
        sample: The sample of a machine or of a process tree.
        page_file: True if swap is called page file on this system.
        root: The process at the root of the tree.
    """
    for gpu in sample.get("gpus", ()):
        name = f"GPU {gpu['index']}"
        yield MemoryRow(f"gpu{gpu['index']}", name, gpu["total"] - gpu["free"], gpu["total"], _gpu_note(gpu))
    if "rss" in sample:
        children = sample.get("children", 0)
        note = count_of(children, "child process", "child processes") if children else ""
        yield MemoryRow(tree_key(root), "process tree", sample["rss"], None, note)
    if "cgroup_limit" in sample:
        yield MemoryRow("cgroup", "cgroup", sample["cgroup_used"], sample["cgroup_limit"])
    if {"ram_total", "ram_available"} <= sample.keys():
        pressure = sample.get("pressure", 0)
        note = f"tasks wait for memory {pressure:.0f} % of the time" if pressure >= 1 else ""
        yield MemoryRow("ram", "RAM", sample["ram_total"] - sample["ram_available"], sample["ram_total"], note)
    if sample.get("swap_total"):
        rate = sample.get("swap_in_rate", 0) + sample.get("swap_out_rate", 0)
        note = f"paging {format_rate(rate)}" if rate else ""
        name = "page file" if page_file else "swap"
        yield MemoryRow("swap", name, sample.get("swap_used", 0), sample["swap_total"], note)
    if sample.get("shm_total"):
        yield MemoryRow("shm", "shared memory", sample["shm_used"], sample["shm_total"])


def tree_key(pid: int | None) -> str:
    """Return the name of a process tree's RSS in the history."""
    return f"tree{pid}"


def process_key(pid: int) -> str:
    """Return the name of a single process's RSS in the history."""
    return f"process{pid}"


def _gpu_note(gpu: Mapping[str, Any]) -> str:
    parts = [f"{gpu['utilization']} % busy"] if "utilization" in gpu else []
    if gpu.get("tree_used"):
        parts.append(f"this tree {format_size(gpu['tree_used'])}")
    if gpu.get("others_used"):
        largest = f", process {gpu['other_pid']}" if "other_pid" in gpu else ""
        parts.append(f"others {format_size(gpu['others_used'])}{largest}")
    return ", ".join(filter(None, (*parts, gpu.get("name", ""))))
