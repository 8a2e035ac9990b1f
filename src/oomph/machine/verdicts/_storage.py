"""Verdicts on `/dev/shm` and on the disk for checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import GIB, count_of, format_size
from .._machine import Machine
from ._fixes import enlarge_shm, show_disk_usage
from ._verdict import DataLoaderConfig, Severity, Verdict

_MIN_FREE_DISK_BYTES = 5 * GIB


def shm_small(machine: Machine, loader: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a `/dev/shm` that is too small for the batches that all workers prefetch."""
    free, total = machine.shm.free.known, machine.shm.total.known
    held = 2 * loader.batch_bytes  # the loop's batch, and one more while it gets the next
    needed = loader.workers * loader.prefetch * loader.batch_bytes + held if loader.workers else 0
    if free is None or total is None or needed <= free:
        return
    max_workers = max(free - held, 0) // (loader.prefetch * loader.batch_bytes)
    yield Verdict(
        Severity.FAILS,
        "shm-small",
        f"{machine.shm.path} has {format_size(free)} free of {format_size(total)}; "
        f"{count_of(loader.workers, 'loader worker')} with batches of {format_size(loader.batch_bytes)} "
        f"need{'s' if loader.workers == 1 else ''} {format_size(needed)}.",
        'When it is full, workers die with "Bus error" or "unable to allocate shared memory".',
        (
            *enlarge_shm(machine, needed),
            f"Or use at most {count_of(max_workers, 'worker')}."
            if max_workers
            else "Or load data in the training process (num_workers=0).",
            "Check what the loaders of your code prefetch:",
            f"$ oomph lint . --select prefetch-over-budget --budget {format_size(free).replace(' ', '')}",
        ),
        (machine.shm.free.source,),
    )


def disk_full(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a nearly full disk for checkpoints."""
    free, total = machine.disk.free.known, machine.disk.total.known
    if free is None or total is None or free >= _MIN_FREE_DISK_BYTES:
        return
    yield Verdict(
        Severity.RISKY,
        "disk-full",
        f"{machine.disk.path} has {format_size(free)} free of {format_size(total)}.",
        "If a checkpoint doesn't fit, the epoch is lost.",
        (*show_disk_usage(machine, machine.disk.path), "Or write checkpoints to another disk."),
        (machine.disk.free.source,),
    )


def folder_readonly(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a checkpoint folder that is not writable."""
    if machine.disk.writable.known is False:
        yield Verdict(
            Severity.FAILS,
            "folder-readonly",
            f"This user may not write to {machine.disk.path}.",
            "The first checkpoint fails, and the epoch before it is lost.",
            ("Write checkpoints to another folder, and check that one:", "$ oomph doctor --checkpoints FOLDER"),
            (machine.disk.writable.source,),
        )
