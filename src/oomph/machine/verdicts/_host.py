"""Verdicts on RAM, swap or page file, commit, cgroups, limits and pressure."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import GIB, MIB, format_rate, format_size
from .._budget import CGROUP_LIMIT, CGROUP_THROTTLE
from .._cgroup import MemoryGroup
from .._fact import Unknown, limited
from .._machine import Machine
from .._surroundings import EnvironmentKind
from ._fixes import add_swap, count, memory_bounds, raise_limit, with_rights
from ._verdict import Load, Severity, Verdict

# Below this much RAM a detector with a few loader workers is likely to need more than there is.
_LITTLE_RAM = 16 * GIB
# A whole point of pressure or megabytes of paging per second are noise; these are felt.
_FELT_PRESSURE = 10.0
_FELT_PAGING = MIB
# Address space that CUDA reserves when it starts, before anything is used: it maps the memory of all GPUs and of the
# host into one range.
_CUDA_ADDRESS_SPACE = 64 * GIB
# Private memory of a spawned worker that has imported torch: 221 MiB measured on Linux with torch 2.13 (CPU build).
_WORKER_COMMIT = 221 * MIB


def memory_unknown(machine: Machine, load: Load) -> Iterator[Verdict]:
    """RAM that could not be read: nothing that was not looked at is called healthy."""
    del load
    missing = [
        (name, fact.value.unknown, fact.source)
        for name, fact in (("RAM", machine.memory.ram_total), ("available RAM", machine.memory.ram_available))
        if isinstance(fact.value, Unknown)
    ]
    if missing:
        name, why, source = missing[0]
        yield Verdict(
            Severity.NOTE,
            "memory-unknown",
            f"The {name} of this machine could not be read from {source}: {why}.",
            "Whether memory suffices was not judged; no verdict on it doesn't mean that all is well.",
            ("Run the doctor where that can be read, for instance outside of the sandbox.",),
            (source,),
        )


def hidden_limit(machine: Machine, load: Load) -> Iterator[Verdict]:
    """RAM that the cgroup doesn't let this process use, though every tool shows it."""
    del load
    ram = machine.memory.ram_total.known
    groups = [bound for bound in memory_bounds(machine) if bound.name in {CGROUP_LIMIT, CGROUP_THROTTLE}]
    if ram is None or not groups or groups[0].limit >= ram:
        return
    smallest = groups[0]
    beyond = "slows it down more and more" if smallest.name == CGROUP_THROTTLE else "kills it"
    yield Verdict(
        Severity.NOTE,
        "ram-hidden",
        f"This process may use {format_size(smallest.limit)} of the {format_size(ram)} of RAM that tools show.",
        f"The kernel {beyond} beyond that, without a Python error; loaders and caches that size themselves by the "
        "machine's RAM will overshoot.",
        raise_limit(machine, smallest),
        (smallest.source, machine.memory.ram_total.source),
    )


def killed_before(machine: Machine, load: Load) -> Iterator[Verdict]:
    """Kills for memory that have already happened in this cgroup."""
    del load
    kills = [(group.oom_kills.known or 0, group.oom_kills.source) for group in machine.cgroups.memory]
    count, source = max(kills, default=(0, ""))
    if count:
        yield Verdict(
            Severity.RISKY,
            "killed-before",
            f"The kernel has already killed {count} process{'es' if count > 1 else ''} here for using too much memory.",
            'That is what "Killed", exit code 137 or "DataLoader worker exited unexpectedly" was.',
            ("Use fewer loader workers or a smaller cache, or raise the limit.",),
            (source,),
        )


def no_swap(machine: Machine, load: Load) -> Iterator[Verdict]:
    """Little RAM and nothing to fall back on."""
    del load
    bounds, swap = memory_bounds(machine), machine.memory.swap_total
    # macOS makes its swap files when it needs them.
    if machine.surroundings.system == "macos" or not bounds or bounds[0].limit >= _LITTLE_RAM:
        return
    forbidden = next((group.swap.source for group in machine.cgroups.memory if _forbids_swap(group)), None)
    if swap.known != 0 and forbidden is None:
        return
    word = "page file" if machine.surroundings.system == "windows" else "swap"
    lack = f"There is no {word}" if swap.known == 0 else "This process's control group may use no swap"
    yield Verdict(
        Severity.RISKY,
        "no-swap",
        f"{lack}, and only {format_size(bounds[0].limit)} of memory ({bounds[0].name}).",
        "The first short peak, such as loader workers starting, ends in a kill instead of a slow second.",
        add_swap(machine, 16 * GIB) if swap.known == 0 else _allow_swap(machine),
        (swap.source if swap.known == 0 else str(forbidden), bounds[0].source),
    )


def _forbids_swap(group: MemoryGroup) -> bool:
    """Version 1 counts memory and swap together."""
    swap = limited(group.swap)
    own = limited(group.maximum) if group.version == 1 else 0
    return swap is not None and own is not None and swap <= own


def _allow_swap(machine: Machine) -> tuple[str, ...]:
    if machine.surroundings.inside(EnvironmentKind.SLURM):
        return ("The cluster forbids swap: ask Slurm for more memory.",)
    if machine.surroundings.inside(EnvironmentKind.CONTAINER):
        return ("Let the container use the host's swap:", "$ docker run --memory-swap=-1 …")
    return ("Raise the swap limit (MemorySwapMax) of the service or session that started this process.",)


def swapping(machine: Machine, load: Load) -> Iterator[Verdict]:
    """Memory that is being paged in or out right now."""
    del load
    memory = machine.memory
    moved = (memory.swap_in_rate.known or 0) + (memory.swap_out_rate.known or 0)
    if moved < _FELT_PAGING:
        return
    used = f", with {format_size(memory.swap_used.known)} of it in use" if memory.swap_used.known else ""
    yield Verdict(
        Severity.RISKY,
        "swapping",
        f"The machine is swapping {format_rate(moved)} right now{used}.",
        "Every page that comes back from disk stops a thread for milliseconds; training runs many times slower.",
        (
            "See who holds the memory:",
            "$ ps aux --sort=-rss | head",
            "End it, or train with fewer loader workers, a smaller prefetch and no RAM cache.",
        ),
        (memory.swap_in_rate.source, memory.swap_out_rate.source),
    )


def under_pressure(machine: Machine, load: Load) -> Iterator[Verdict]:
    """Tasks that stand still for want of memory."""
    del load
    some = machine.pressure.memory_some
    if some.known is not None and some.known >= _FELT_PRESSURE:
        yield Verdict(
            Severity.RISKY,
            "memory-pressure",
            f"Tasks stood still for want of memory in {some.known:.0f} % of the last ten seconds.",
            "The system is busy finding memory instead of working; a kill is near.",
            ("End what isn't needed:", "$ ps aux --sort=-rss | head"),
            (some.source,),
        )


def commit_short(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A commit limit that spawned loader workers would exceed: WinError 1455, or ENOMEM in overcommit mode 2."""
    memory = machine.memory
    limit, charge = memory.commit_limit.known, memory.commit_charge.known
    if not memory.commit_enforced.known or limit is None or charge is None or load.workers == 0:
        return
    each, origin = commit_per_worker(machine)
    needed, room = load.workers * each, limit - charge
    if needed <= room:
        return
    workers = count(load.workers, "spawned loader worker")
    windows = machine.surroundings.system == "windows"
    yield Verdict(
        Severity.FAILS,
        "commit-short",
        f"{workers} need{'s' if load.workers == 1 else ''} {format_size(needed)} of commit, and "
        f"{format_size(max(room, 0))} of {format_size(limit)} is left.",
        f"Each worker imports torch, for which the system sets {format_size(each)} aside ({origin}) although it is "
        + (
            'hardly touched: the true cause of WinError 1455, "the paging file is too small".'
            if windows
            else "hardly touched; beyond the limit it refuses memory while RAM is still free."
        ),
        (_fewer_workers(max(room // each, 0), load.workers), *_more_commit(machine, needed - room)),
        (memory.commit_limit.source, memory.commit_charge.source),
    )


def _fewer_workers(fitting: int, asked: int) -> str:
    instead = f"Use at most {count(fitting, 'loader worker')}" if fitting else "Use no loader workers (num_workers=0)"
    return f"{instead}, or threads; or make room for {asked}:"


def _more_commit(machine: Machine, missing: int) -> tuple[str, ...]:
    swap = add_swap(machine, missing + 2 * GIB)  # and something for the training process itself
    if machine.surroundings.system == "windows":
        return swap
    promise = with_rights(machine, "$ sudo sysctl vm.overcommit_memory=0")
    return (*swap, "or let the kernel promise more than it has:", *promise)


def commit_per_worker(machine: Machine) -> tuple[int, str]:
    """Bytes of commit of one spawned worker, and where that figure comes from.

    Windows charges the copy-on-write sections of every DLL in full, so the size of torch's libraries counts.
    """
    libraries = machine.software.torch_libraries.known
    cuda = machine.software.torch_cuda.known not in {None, "none"}
    if machine.surroundings.system == "windows" and cuda and libraries is not None:
        return libraries + _WORKER_COMMIT, "torch's libraries in full, as Windows counts them"
    return _WORKER_COMMIT, "measured on Linux with a CPU torch"


def address_limit(machine: Machine, load: Load) -> Iterator[Verdict]:
    """An address-space limit, which CUDA and memory-mapped files run into long before RAM is full."""
    del load
    limit = limited(machine.limits.address_space)
    if limit is None:
        return
    gpu = bool(machine.graphics.gpus)
    fails = gpu and limit < _CUDA_ADDRESS_SPACE
    yield Verdict(
        Severity.FAILS if fails else Severity.RISKY,
        "address-limit",
        f"The address space of this process is limited to {format_size(limit)}.",
        "CUDA reserves more address space than that when it starts, and fails."
        if fails
        else "Allocations fail at this limit while RAM is still free; torch alone maps gigabytes that it never uses.",
        (
            "$ ulimit -v unlimited",
            "If that is refused, the limit was set by the shell, job or service around it.",
        ),
        (machine.limits.address_space.source,),
    )


def data_limit(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A limit on private memory smaller than RAM."""
    del load
    limit, ram = limited(machine.limits.data), machine.memory.ram_total.known
    if limit is not None and (ram is None or limit < ram):
        yield Verdict(
            Severity.RISKY,
            "data-limit",
            f"The private memory of this process is limited to {format_size(limit)}.",
            "Allocations fail at this limit while RAM is still free.",
            ("$ ulimit -d unlimited",),
            (machine.limits.data.source,),
        )
