"""Predicted snapshots: torch's own code reads them, and their numbers are those of the prediction."""

from __future__ import annotations

import inspect
import io
import pickle
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from torch.cuda import _memory_viz

from oomph.prediction import TimelineFiles, memory_snapshot, trace_device
from oomph.trace import trace_step

from . import traced_jobs
from .traced_jobs import ALLOCATORS, JOBS, TARGET, predicted

# What the viewer of pytorch.org/memory_viz reads.
VIEWER_OPCODES = {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET", "LONG_BINGET"),
    *("EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE", "NEWTRUE", "NEWFALSE"),
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE"),
}


def snapshot_of(name: str, allocator: str = "expandable") -> dict[str, Any]:
    trace, settings, target, _ = predicted(name, allocator)
    return memory_snapshot(trace, settings, target)


def entries(snapshot: dict[str, Any], action: str) -> list[dict[str, Any]]:
    return [entry for entry in snapshot["device_traces"][0] if entry["action"] == action]


def shown(entry: dict[str, Any]) -> list[str]:
    """The frames of an entry as torch's tools show them."""
    return _memory_viz._frames_fmt(entry["frames"])


def line_of(function: Any, text: str) -> int:
    """The line of a function that contains a text."""
    lines, first = inspect.getsourcelines(function)
    return next(first + number for number, line in enumerate(lines) if text in line)


@pytest.mark.medium
@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("name", JOBS)
def test_peak_of_the_events_is_the_prediction(name: str, allocator: str) -> None:
    trace, settings, target, prediction = predicted(name, allocator)
    snapshot = memory_snapshot(trace, settings, target)
    live: dict[int, int] = {}
    requested: dict[int, int] = {}
    total = peak = reserved = peak_reserved = 0
    for entry in snapshot["device_traces"][0]:
        action, address, size = entry["action"], entry["addr"], entry["size"]
        if action == "alloc":
            assert address not in live
            live[address] = size
            total += size
        elif action == "free_requested":
            requested[address] = live.pop(address)
        elif action == "free_completed":
            assert requested.pop(address) == size
            total -= size
        else:
            reserved += size if action in {"segment_alloc", "segment_map"} else -size
        peak, peak_reserved = max(peak, total), max(peak_reserved, reserved)
    assert peak == prediction.allocated.value
    assert peak_reserved == prediction.reserved.value
    assert not requested
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    assert {b["address"]: b["size"] for b in blocks if b["state"] == "active_allocated"} == live
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == reserved
    assert sum(segment["allocated_size"] for segment in snapshot["segments"]) == total


@pytest.mark.parametrize("allocator", ["expandable", "default"])
def test_torch_reads_it(allocator: str) -> None:
    snapshot = snapshot_of("sgd", allocator)
    total = sum(segment["total_size"] for segment in snapshot["segments"])
    assert f"total_reserved: {_memory_viz.Bytes(total)}" in _memory_viz.segsum(snapshot)
    assert "Active Memory Timeline" in _memory_viz.trace_plot(snapshot)
    assert "Allocator State History" in _memory_viz.segment_plot(snapshot)
    assert f"{len(snapshot['device_traces'][0])} entries" in _memory_viz.trace(snapshot)
    flamegraph = _memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)
    assert "module:0:stem.weight (Conv2d)" in flamegraph


@pytest.mark.medium
def test_torch_reads_the_file_on_the_command_line(tmp_path: Path) -> None:
    trace, settings, target, _ = predicted("sgd", "default")
    TimelineFiles(snapshot=tmp_path / "step.pickle").write(trace, settings, target)
    script = str(inspect.getsourcefile(_memory_viz))
    arguments = [sys.executable, script, "trace_plot", "step.pickle", "-o", "plot.html"]
    subprocess.run(arguments, cwd=tmp_path, check=True, timeout=60)
    assert "MemoryViz" in (tmp_path / "plot.html").read_text()


class BuiltinsOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise AssertionError(f"the pickle imports {module}.{name}")


def test_file_is_small_and_has_only_what_the_viewer_reads(tmp_path: Path) -> None:
    trace, settings, target, _ = predicted("adamw-accumulate", "expandable")
    path = tmp_path / "step.pickle"
    TimelineFiles(snapshot=path).write(trace, settings, target)
    data = path.read_bytes()
    snapshot = BuiltinsOnly(io.BytesIO(data)).load()
    assert snapshot == memory_snapshot(trace, settings, target)
    assert {opcode.name for opcode, _, _ in pickletools.genops(data)} <= VIEWER_OPCODES
    assert len(data) < 150 * len(snapshot["device_traces"][0])


def test_frames_name_operation_module_step_and_lines() -> None:
    allocations = entries(snapshot_of("sgd"), "alloc")
    file = Path(traced_jobs.__file__).name
    gelu = f"{file}:{line_of(traced_jobs.Block.body, 'F.gelu')}:body"
    linear = next(e for e in allocations if shown(e)[:2] == ["operation:0:addmm", "module:0:blocks.1.wide (Linear)"])
    assert shown(linear)[2:] == [
        "step:1:forward",
        gelu,
        f"{file}:{line_of(traced_jobs.Block.forward, 'x + self.body')}:forward",
        f"{file}:{line_of(traced_jobs.Net.forward, 'self.head')}:forward",
    ]
    assert linear["category"] == "saved activation"


def test_frames_in_backward_are_those_of_the_forward_operation() -> None:
    allocations = entries(snapshot_of("sgd"), "alloc")
    gelu = f"{Path(traced_jobs.__file__).name}:{line_of(traced_jobs.Block.body, 'F.gelu')}:body"
    backward = [entry for entry in allocations if "operation:0:gelu_backward" in shown(entry)]
    assert len(backward) == 9  # three blocks, three steps
    assert all("backward" in shown(entry)[2] and shown(entry)[3] == gelu for entry in backward)


def test_weights_have_their_module_and_their_class() -> None:
    snapshot = snapshot_of("sgd")
    weight = next(e for e in entries(snapshot, "alloc") if "module:0:head.weight (Linear)" in shown(e))
    assert (weight["category"], weight["size"]) == ("parameter", 64 * 10 * 4)
    assert shown(weight) == ["module:0:head.weight (Linear)", "step:1:build"]


def test_viewer_gets_the_category_that_it_requires() -> None:
    categories = {entry["category"] for entry in snapshot_of("sgd")["device_traces"][0]}
    assert {"unknown", "parameter", "gradient", "optimizer state", "saved activation"} <= categories


def test_times_rise_up_to_three_steps() -> None:
    _, _, _, prediction = predicted("adamw-accumulate", "expandable")
    times = [entry["time_us"] for entry in snapshot_of("adamw-accumulate")["device_traces"][0]]
    assert times == sorted(times)
    assert 2 * prediction.seconds.value < times[-1] / 1e6 <= 3 * prediction.seconds.value


def test_traces_without_stacks_have_the_other_frames() -> None:
    job, settings = JOBS["sgd"]
    plain = memory_snapshot(trace_step(job, settings, trace_device(TARGET)), settings, TARGET)
    assert {frame["filename"] for e in entries(plain, "alloc") for frame in e["frames"]} == {
        "operation",
        "module",
        "step",
    }
    with_lines = snapshot_of("sgd")
    sizes = [(entry["action"], entry["addr"], entry["size"]) for entry in with_lines["device_traces"][0]]
    assert [(entry["action"], entry["addr"], entry["size"]) for entry in plain["device_traces"][0]] == sizes
