"""Verdicts on RAM, swap or page file, commit, cgroups, process limits and memory pressure."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import GIB, MIB, count_of, format_rate, format_size
from .._budget import CGROUP_LIMIT, CGROUP_THROTTLE
from .._fact import Unknown, limit_bytes
from .._machine import Machine
from ..host import EnvironmentKind, MemoryCgroup
from ._fixes import add_swap, as_administrator, raise_limit, shared_bounds
from ._verdict import DataLoaderConfig, Severity, Verdict

# With less RAM, a detector with a few loader workers is likely to run out of memory.
_MIN_RAM_BYTES = 16 * GIB
# Less pressure and slower paging than this are noise.
_MIN_PRESSURE_PERCENT = 10.0
_MIN_PAGING_RATE = MIB
# CUDA reserves this much address space when it starts: it maps the memory of all GPUs and of the host into one range.
_CUDA_ADDRESS_SPACE = 64 * GIB
# Private memory of a spawned worker that has imported torch: 221 MiB, measured on Linux with torch 2.13 (CPU build).
_WORKER_COMMIT_BYTES = 221 * MIB


def memory_unknown(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report RAM that could not be read, so that a machine without verdicts on memory isn't taken for healthy."""
    unreadable = [
        (name, fact.value.unknown, fact.source)
        for name, fact in (("RAM", machine.memory.ram_total), ("available RAM", machine.memory.ram_available))
        if isinstance(fact.value, Unknown)
    ]
    if unreadable:
        name, reason, source = unreadable[0]
        yield Verdict(
            Severity.NOTE,
            "memory-unknown",
            f"The {name} of this machine could not be read from {source}: {reason}.",
            "oomph could not check whether there is enough memory.",
            ("Run `oomph doctor` where the file is readable, such as outside the sandbox.",),
            (source,),
        )


def cgroup_limit(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report RAM that a cgroup doesn't let this process use, although tools show it."""
    ram = machine.memory.ram_total.known
    bounds = [bound for bound in shared_bounds(machine) if bound.name in {CGROUP_LIMIT, CGROUP_THROTTLE}]
    if ram is None or not bounds or bounds[0].limit >= ram:
        return
    smallest = bounds[0]
    effect = "throttles it" if smallest.name == CGROUP_THROTTLE else "kills it"
    yield Verdict(
        Severity.NOTE,
        "cgroup-limit",
        f"This process may use {format_size(smallest.limit)} of the {format_size(ram)} of RAM that tools show.",
        f"Beyond that, the kernel {effect} without a Python error. Loaders and caches that size themselves by the "
        "machine's RAM will exceed it.",
        raise_limit(machine, smallest),
        (smallest.source, machine.memory.ram_total.source),
    )


def past_oom_kills(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report processes of this cgroup that the kernel has already killed because memory ran out."""
    counters = [cgroup.oom_kills for cgroup in machine.cgroups.memory]
    kills, source = max(((counter.known or 0, counter.source) for counter in counters), default=(0, ""))
    if kills:
        yield Verdict(
            Severity.RISKY,
            "past-oom-kills",
            f"The kernel has already killed {kills} process{'es' if kills > 1 else ''} here because memory ran out.",
            'Training reports such a kill as "Killed", exit code 137 or "DataLoader worker exited unexpectedly".',
            ("Use fewer loader workers or a smaller cache, or raise the limit.",),
            (source,),
        )


def no_swap(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report little RAM without swap."""
    bounds, swap = shared_bounds(machine), machine.memory.swap_total
    # macOS creates swap files when it needs them.
    if machine.environment.system == "macos" or not bounds or bounds[0].limit >= _MIN_RAM_BYTES:
        return
    forbidden = next((cgroup.swap_limit.source for cgroup in machine.cgroups.memory if _forbids_swap(cgroup)), None)
    if swap.known != 0 and forbidden is None:
        return
    word = "page file" if machine.environment.system == "windows" else "swap"
    problem = f"There is no {word}" if swap.known == 0 else "The cgroup of this process may not use swap"
    yield Verdict(
        Severity.RISKY,
        "no-swap",
        f"{problem}, and only {format_size(bounds[0].limit)} of memory ({bounds[0].name}).",
        "A short peak, such as the start of loader workers, ends in a kill instead of a slow second.",
        add_swap(machine, 16 * GIB) if swap.known == 0 else _allow_swap(machine),
        (swap.source if swap.known == 0 else str(forbidden), bounds[0].source),
    )


def _forbids_swap(cgroup: MemoryCgroup) -> bool:
    swap_limit = limit_bytes(cgroup.swap_limit)
    # Version 1 limits memory and swap together.
    memory_limit = limit_bytes(cgroup.limit) if cgroup.version == 1 else 0
    return swap_limit is not None and memory_limit is not None and swap_limit <= memory_limit


def _allow_swap(machine: Machine) -> tuple[str, ...]:
    if machine.environment.inside(EnvironmentKind.SLURM):
        return ("The cluster forbids swap: request more memory from Slurm.",)
    if machine.environment.inside(EnvironmentKind.CONTAINER):
        return ("Let the container use the host's swap:", "$ docker run --memory-swap=-1 …")
    return ("Raise the swap limit (MemorySwapMax) of the service or session that started this process.",)


def swapping(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report memory that is being paged in or out."""
    memory = machine.memory
    rate = (memory.swap_in_rate.known or 0) + (memory.swap_out_rate.known or 0)
    if rate < _MIN_PAGING_RATE:
        return
    used = f", with {format_size(memory.swap_used.known)} of swap in use" if memory.swap_used.known else ""
    yield Verdict(
        Severity.RISKY,
        "swapping",
        f"The machine is swapping {format_rate(rate)} right now{used}.",
        "Every page read from disk blocks a thread for milliseconds, so training runs many times slower.",
        (
            "See which processes use the memory:",
            "$ ps aux --sort=-rss | head",
            "Stop them, or train with fewer loader workers, a smaller prefetch_factor and no RAM cache.",
        ),
        (memory.swap_in_rate.source, memory.swap_out_rate.source),
    )


def memory_pressure(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report tasks that wait for memory."""
    some = machine.pressure.memory_some
    if some.known is not None and some.known >= _MIN_PRESSURE_PERCENT:
        yield Verdict(
            Severity.RISKY,
            "memory-pressure",
            f"Tasks waited for memory in {some.known:.0f} % of the last ten seconds.",
            "The system spends its time reclaiming memory, and the kernel may soon kill a process.",
            ("Stop processes that you don't need:", "$ ps aux --sort=-rss | head"),
            (some.source,),
        )


def commit_limit(machine: Machine, loader: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a commit limit that spawned workers would exceed: WinError 1455, or ENOMEM in overcommit mode 2."""
    memory = machine.memory
    limit, charge = memory.commit_limit.known, memory.commit_charge.known
    if not memory.commit_enforced.known or limit is None or charge is None or loader.workers == 0:
        return
    per_worker, origin = _commit_per_worker(machine)
    needed, available = loader.workers * per_worker, limit - charge
    if needed <= available:
        return
    consequence = (
        'Beyond the limit, Windows fails with WinError 1455, "the paging file is too small".'
        if machine.environment.system == "windows"
        else "Beyond the limit, allocations fail while RAM is still free."
    )
    yield Verdict(
        Severity.FAILS,
        "commit-limit",
        f"{count_of(loader.workers, 'spawned loader worker')} need{'s' if loader.workers == 1 else ''} "
        f"{format_size(needed)} of commit; {format_size(max(available, 0))} of {format_size(limit)} is left.",
        f"Each worker imports torch, and the system commits {format_size(per_worker)} for it ({origin}), although it "
        f"uses little of that. {consequence}",
        (
            _fewer_workers(max(available // per_worker, 0), loader.workers),
            *_more_commit(machine, needed - available),
        ),
        (memory.commit_limit.source, memory.commit_charge.source),
    )


def _fewer_workers(max_workers: int, workers: int) -> str:
    alternative = (
        f"Use at most {count_of(max_workers, 'loader worker')}"
        if max_workers
        else "Use no loader workers (num_workers=0)"
    )
    return f"{alternative}, or use threads, or raise the limit for {count_of(workers, 'worker')}:"


def _more_commit(machine: Machine, missing: int) -> tuple[str, ...]:
    swap = add_swap(machine, missing + 2 * GIB)  # the training process itself needs some too
    if machine.environment.system == "windows":
        return swap
    overcommit = as_administrator(machine, "$ sudo sysctl vm.overcommit_memory=0")
    return (*swap, "Or let the kernel overcommit memory:", *overcommit)


def _commit_per_worker(machine: Machine) -> tuple[int, str]:
    """Return the commit of one spawned worker in bytes, and the origin of the number.

    Windows charges the copy-on-write sections of every DLL in full, so the size of torch's libraries counts.
    """
    libraries = machine.software.torch_library_bytes.known
    has_cuda = machine.software.torch_cuda.known not in {None, "none"}
    if machine.environment.system == "windows" and has_cuda and libraries is not None:
        return libraries + _WORKER_COMMIT_BYTES, "the full size of torch's libraries, as Windows counts them"
    return _WORKER_COMMIT_BYTES, "measured on Linux with a CPU build of torch"


def address_space_limit(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report an address-space limit, which CUDA and memory-mapped files reach long before RAM is full."""
    limit = limit_bytes(machine.limits.address_space)
    if limit is None:
        return
    fails = bool(machine.gpus) and limit < _CUDA_ADDRESS_SPACE
    yield Verdict(
        Severity.FAILS if fails else Severity.RISKY,
        "address-space-limit",
        f"The address space of this process is limited to {format_size(limit)}.",
        "CUDA reserves more address space than that when it starts, and fails."
        if fails
        else "Allocations fail at this limit while RAM is still free. torch alone maps gigabytes that it never uses.",
        (
            "$ ulimit -v unlimited",
            "If that is refused, raise the limit in the shell, job or service that set it.",
        ),
        (machine.limits.address_space.source,),
    )


def data_limit(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a limit on private memory that is smaller than RAM."""
    limit, ram = limit_bytes(machine.limits.data), machine.memory.ram_total.known
    if limit is not None and (ram is None or limit < ram):
        yield Verdict(
            Severity.RISKY,
            "data-limit",
            f"The private memory of this process is limited to {format_size(limit)}.",
            "Allocations fail at this limit while RAM is still free.",
            ("$ ulimit -d unlimited",),
            (machine.limits.data.source,),
        )
