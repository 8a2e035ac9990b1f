"""Verdicts on `/dev/shm`, disks and cores."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...units import GIB, format_size
from .._machine import Machine
from .._surroundings import Place
from ._verdict import Load, Severity, Verdict

_LITTLE_DISK = 5 * GIB
_CORES_PER_GPU = 4
_FEWEST_CORES = 2


def shm_small(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A `/dev/shm` that a full prefetch would overrun: every worker keeps its batches there."""
    free, total = machine.shm.free.known, machine.shm.total.known
    needed = load.workers * load.prefetch * load.batch
    if free is None or total is None or needed <= free:
        return
    fitting = free // (load.prefetch * load.batch)
    yield Verdict(
        Severity.FAILS,
        "shm-small",
        f"{machine.shm.path} has {format_size(free)} free of {format_size(total)}; {load.workers} loader workers "
        f"with batches of {format_size(load.batch)} fill {format_size(needed)}.",
        'When it is full, workers die of "Bus error" or "unable to allocate shared memory".',
        (
            *_more_shm(machine, needed),
            f"or use at most {fitting} workers."
            if fitting
            else "or load in the training process itself (num_workers=0).",
        ),
        (machine.shm.free.source,),
    )


def _more_shm(machine: Machine, needed: int) -> tuple[str, ...]:
    gib = math.ceil(2 * needed / GIB)
    if machine.surroundings.inside(Place.CONTAINER):
        return (
            f"$ docker run --shm-size={gib}g …",
            'on Kubernetes, mount an emptyDir with "medium: Memory" at /dev/shm',
        )
    return (f"$ sudo mount -o remount,size={gib}G /dev/shm",)


def disk_full(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A nearly full disk where checkpoints go."""
    del load
    free, total = machine.disk.free.known, machine.disk.total.known
    if free is None or total is None or free >= _LITTLE_DISK:
        return
    yield Verdict(
        Severity.RISKY,
        "disk-full",
        f"{machine.disk.path} has {format_size(free)} free of {format_size(total)}.",
        "A checkpoint that doesn't fit is a lost epoch.",
        (
            "See what fills it:",
            f"$ du -xh --max-depth=2 {machine.disk.path} | sort -h | tail",
            "or write checkpoints elsewhere.",
        ),
        (machine.disk.free.source,),
    )


def folder_readonly(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A folder for checkpoints that nothing can be written to."""
    del load
    if machine.disk.writable.known is False:
        yield Verdict(
            Severity.FAILS,
            "folder-readonly",
            f"This user may not write to {machine.disk.path}.",
            "The first checkpoint fails, after the work that it should have kept.",
            ("Write checkpoints elsewhere, and name that folder:", "$ oomph doctor --checkpoints FOLDER"),
            (machine.disk.writable.source,),
        )


def few_cores(machine: Machine, load: Load) -> Iterator[Verdict]:
    """Fewer cores than the loader and the GPUs want."""
    usable = machine.cores.usable.known
    if usable is None:
        return
    gpus = len(machine.graphics.gpus)
    wanted = _CORES_PER_GPU * gpus
    if gpus and usable < wanted:
        yield Verdict(
            Severity.RISKY,
            "few-cores",
            f"{usable:g} cores for {gpus} GPU{'s' if gpus > 1 else ''}.",
            "Decoding images will hold the GPU up.",
            (
                *_more_cores(machine),
                f"or use at most {max(int(usable) - 1, 1)} loader workers and smaller images.",
            ),
            (machine.cores.usable.source,),
        )
    elif usable < _FEWEST_CORES:
        yield Verdict(
            Severity.RISKY,
            "few-cores",
            f"Only {usable:g} core{'s' if usable > 1 else ''} can be used.",
            "Loading data and training take turns.",
            _more_cores(machine),
            (machine.cores.usable.source,),
        )
    elif load.workers > usable:
        yield Verdict(
            Severity.NOTE,
            "more-workers-than-cores",
            f"{load.workers} loader workers on {usable:g} cores.",
            "More workers than cores cost memory and bring no speed.",
            (f"Use at most {max(int(usable), 1)} workers.",),
            (machine.cores.usable.source,),
        )


def _more_cores(machine: Machine) -> tuple[str, ...]:
    if machine.surroundings.inside(Place.SLURM):
        return ("Ask for more:", "$ sbatch --cpus-per-task=8 …")
    if machine.surroundings.inside(Place.CONTAINER):
        return ("Start the container with more:", "$ docker run --cpus=8 …")
    return ("Take a machine with more cores,",)
