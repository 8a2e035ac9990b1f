"""Verdicts on `/dev/shm`, disks and cores."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import GIB, format_size
from .._machine import Machine
from ._fixes import count, more_cores, more_shm, see_what_fills
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
        f"{machine.shm.path} has {format_size(free)} free of {format_size(total)}; "
        f"{count(load.workers, 'loader worker')} with batches of {format_size(load.batch)} "
        f"fill{'s' if load.workers == 1 else ''} {format_size(needed)}.",
        'When it is full, workers die of "Bus error" or "unable to allocate shared memory".',
        (
            *more_shm(machine, needed),
            f"or use at most {count(fitting, 'worker')}."
            if fitting
            else "or load in the training process itself (num_workers=0).",
        ),
        (machine.shm.free.source,),
    )


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
            *see_what_fills(machine, machine.disk.path),
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
            f"{count(usable, 'core')} for {count(gpus, 'GPU')}.",
            "Decoding images will hold the GPU up.",
            (
                *more_cores(machine, wanted),
                f"Or use at most {count(max(int(usable) - 1, 1), 'loader worker')} and smaller images.",
            ),
            (machine.cores.usable.source,),
        )
    elif usable < _FEWEST_CORES:
        yield Verdict(
            Severity.RISKY,
            "few-cores",
            f"Only {count(usable, 'core')} can be used.",
            "Loading data and training take turns.",
            more_cores(machine),
            (machine.cores.usable.source,),
        )
    elif load.workers > usable:
        yield Verdict(
            Severity.NOTE,
            "more-workers-than-cores",
            f"{count(load.workers, 'loader worker')} on {count(usable, 'core')}.",
            "More workers than cores cost memory and bring no speed.",
            (f"Use at most {count(max(int(usable), 1), 'worker')}.",),
            (machine.cores.usable.source,),
        )
