"""GPUs and who uses their memory, made from the driver's answers."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar

from ._fact import Fact, Unknown, unknown
from ._nvml import Answers

T = TypeVar("T")

# The bits of NVML's clocks event reasons that cost speed and that somebody can do something about.
_SLOWDOWNS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "hot GPU",
    0x40: "hot GPU, forced by hardware",
    0x80: "power brake, forced by hardware",
}


class DriverState(enum.Enum):
    """Whether there is a GPU to talk to."""

    READY = "ready"
    NO_GPU = "no gpu"
    NO_DRIVER = "no driver"
    FAILED = "driver failed"


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds GPU memory.

    Attributes:
        pid: its number.
        name: its program.
        used: bytes it holds.
        ours: whether it is this very process.
        graphics: whether it only draws, as a desktop does.
    """

    pid: int
    name: Fact[str]
    used: Fact[int]
    ours: bool
    graphics: bool


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver sees it.

    Attributes:
        index: the driver's number for it, which `CUDA_VISIBLE_DEVICES` may change for programs.
        name: the product's name.
        total: bytes of memory, what the driver keeps for itself included.
        free: bytes nobody uses.
        used: bytes in use, the driver's own included.
        processes: who uses it; unknown where memory is used but nobody can be seen, as in a container.
        compute_capability: "9.0".
        ecc: whether error correction is on.
        mig: whether it is divided into instances.
        slowdowns: what holds the clocks down just now.
    """

    index: int
    name: Fact[str]
    total: Fact[int]
    free: Fact[int]
    used: Fact[int]
    processes: Fact[tuple[GpuProcess, ...]]
    compute_capability: Fact[str]
    ecc: Fact[bool]
    mig: Fact[bool]
    slowdowns: Fact[tuple[str, ...]]


@dataclass(frozen=True)
class Graphics:
    """The NVIDIA driver and its GPUs.

    Attributes:
        state: ready, or why there is no GPU to talk to.
        why: the same in words; empty when ready.
        driver: the driver's version.
        cuda: the newest CUDA version that the driver supports.
        gpus: every GPU it sees.
    """

    state: DriverState
    why: str
    driver: Fact[str]
    cuda: Fact[str]
    gpus: tuple[Gpu, ...]


def read_graphics(answers: Answers) -> Graphics:
    """Turn the driver's answers into facts."""
    state = DriverState(answers["state"])
    if "driver" not in answers:
        return Graphics(state, answers["why"], unknown(answers["why"], "NVML"), unknown(answers["why"], "NVML"), ())
    return Graphics(
        state=state,
        why=answers["why"],
        driver=_fact(answers["driver"], "NVML driver version", str),
        cuda=_fact(answers["cuda"], "NVML CUDA driver version", lambda n: f"{n // 1000}.{n % 1000 // 10}"),
        gpus=tuple(_gpu(index, device) for index, device in enumerate(answers["devices"])),
    )


def _gpu(index: int, device: Answers) -> Gpu:
    where = f"NVML GPU {index}"
    memory = device["memory"]
    return Gpu(
        index=index,
        name=_fact(device["name"], where, str),
        total=_fact(memory, f"{where} memory", lambda info: int(info["total"])),
        free=_fact(memory, f"{where} memory", lambda info: int(info["free"])),
        used=_fact(memory, f"{where} memory", lambda info: int(info["used"])),
        processes=_processes(device, where),
        compute_capability=_fact(device["capability"], where, lambda pair: ".".join(map(str, pair))),
        ecc=_fact(device["ecc"], f"{where} ECC mode", bool),
        mig=_fact(device["mig"], f"{where} MIG mode", bool),
        slowdowns=_fact(device["slowdown"], f"{where} clocks event reasons", _slowdowns),
    )


# An idle driver holds some memory itself; beyond this much, somebody must be using the GPU.
DRIVER_SHARE = 1024**3


def _processes(device: Answers, where: str) -> Fact[tuple[GpuProcess, ...]]:
    source = f"{where} processes"
    answer, memory = device["processes"], device["memory"].get("value")
    if answer.get("value") == [] and memory and memory["used"] > DRIVER_SHARE:
        return unknown("memory is in use, but the processes that use it can't be seen from here", source)
    return _fact(answer, source, lambda found: tuple(_process(one, source) for one in found))


def _process(answer: Answers, source: str) -> GpuProcess:
    used = answer["used"]
    return GpuProcess(
        pid=answer["pid"],
        name=_fact(answer["name"], source, lambda path: PurePath(str(path).split(" ")[0]).name),
        used=unknown("the driver doesn't say (a container, or Windows)", source)
        if used is None
        else Fact(used, source),
        ours=answer["pid"] == os.getpid(),
        graphics=bool(answer.get("graphics")),
    )


def _slowdowns(bits: int) -> tuple[str, ...]:
    return tuple(words for bit, words in _SLOWDOWNS.items() if bits & bit)


def _fact(answer: Answers, source: str, make: Callable[[Any], T]) -> Fact[T]:
    if "error" in answer:
        return Fact(Unknown(answer["error"]), source)
    return Fact(make(answer["value"]), source)
