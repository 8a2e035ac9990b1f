"""Names of nvidia-smi's fields, options and commands, and what people write for them."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping

# What people write for a field or option, where another spelling is no near miss of it.
SAME_NAMES = {
    "--query-gpu": {
        "gpu.utilization": "utilization.gpu", "gpu_utilization": "utilization.gpu", "gpu_util": "utilization.gpu",
        "gpu.util": "utilization.gpu", "util.gpu": "utilization.gpu", "utilization": "utilization.gpu",
        "gpu.usage": "utilization.gpu", "gpu_usage": "utilization.gpu", "gpu.load": "utilization.gpu",
        "memory.utilization": "utilization.memory", "mem.utilization": "utilization.memory",
        "temp": "temperature.gpu", "temp.gpu": "temperature.gpu", "gpu.temp": "temperature.gpu",
        "gpu_temp": "temperature.gpu", "temperature": "temperature.gpu", "gpu.temperature": "temperature.gpu",
        "gpu_temperature": "temperature.gpu", "temperature.current": "temperature.gpu",
        "temperature.core": "temperature.gpu", "memory.temperature": "temperature.memory",
        "vram.used": "memory.used", "vram.total": "memory.total", "vram.free": "memory.free",
        "mem.used": "memory.used", "mem.total": "memory.total", "mem.free": "memory.free",
        "used.memory": "memory.used", "total.memory": "memory.total", "free.memory": "memory.free",
        "used_memory": "memory.used", "used_gpu_memory": "memory.used", "memory.usage": "memory.used",
        "memory.allocated": "memory.used", "memory.available": "memory.free", "fb_memory.used": "memory.used",
        "power": "power.draw", "power.usage": "power.draw", "power_usage": "power.draw", "power.used": "power.draw",
        "power.current": "power.draw", "power.consumption": "power.draw", "draw.power": "power.draw",
        "power.max": "power.max_limit", "power.cap": "power.limit", "fan": "fan.speed", "speed.fan": "fan.speed",
        "gpu.name": "name", "product_name": "name", "gpu_id": "index", "gpu.index": "index", "id": "index",
        "driver.version": "driver_version", "bus_id": "pci.bus_id", "performance_state": "pstate",
        "clocks.gpu": "clocks.gr", "clocks.graphics": "clocks.gr", "clock.sm": "clocks.sm",
        "clocks.memory": "clocks.mem",
        "compute_capability": "compute_cap", "cuda_compute_cap": "compute_cap",
    },
    "--query-compute-apps": {
        "memory.used": "used_memory", "memory_used": "used_memory", "gpu_memory": "used_memory",
        "used.memory": "used_memory", "gpu_memory_usage": "used_memory", "memory": "used_memory",
        "memory.usage": "used_memory", "process.name": "process_name", "command": "process_name",
        "process_id": "pid", "name.process": "process_name", "uuid": "gpu_uuid", "bus_id": "gpu_bus_id",
    },
    "": {
        "--interval": "--loop", "--refresh": "--loop", "--watch": "--loop", "--delay": "--loop", "--seconds": "--loop",
        "--gpu": "--id", "--device": "--id", "--gpu-id": "--id", "--output": "--filename", "--file": "--filename",
        "--query-gpus": "--query-gpu", "--query-apps": "--query-compute-apps",
        "--query-processes": "--query-compute-apps", "--list": "--list-gpus", "--reset": "--gpu-reset",
        "--xml": "--xml-format", "--interval-ms": "--loop-ms", "--persistence": "--persistence-mode",
    },
}  # fmt: skip
# Fields that have no counterpart with the same meaning.
HINTS = {
    "memory.percent": "compute it from memory.used and memory.total",
    "memory.utilization.percent": "compute it from memory.used and memory.total",
    "processes": "use --query-compute-apps=pid,used_memory",
    "pid": "use --query-compute-apps=pid,used_memory",
    "process_name": "use --query-compute-apps=process_name,used_memory",
    "cuda_version": "read it from the output of nvidia-smi -q",
    "cuda.version": "read it from the output of nvidia-smi -q",
}


@functools.cache
def known_names() -> Mapping[str, frozenset[str]]:
    """Return the known names by their kind: "option", "letters", "command", or the switch that queries fields.

    Fields are in lower case.
    """
    names: dict[str, set[str]] = {}
    text = importlib.resources.files(__package__).joinpath("nvidia_smi_names.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            kind, _, listed = line.partition(": ")
            names.setdefault(kind, set()).update((listed.lower() if kind.startswith("--") else listed).split())
    return {kind: frozenset(values) for kind, values in names.items()}
