"""Fixes fit the machine: never more than it has, and only what this user can do here."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from oomph.machine import Load, Machine, Verdict, judge
from oomph.machine._budget import Bound, Budget
from oomph.machine._fact import Fact
from oomph.machine._machine import machine_from
from oomph.machine._source import Source
from oomph.units import GIB, MIB

from ..recordings import NO_DRIVER, software

ReadMachine = Callable[[str], Machine]
Recorded = Callable[[str], Source]


def verdicts(machine: Machine, load: Load | None = None) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in judge(machine, load)}


def with_memory(machine: Machine, **facts: object) -> Machine:
    changed = {name: Fact(value, "x") for name, value in facts.items()}
    return dataclasses.replace(machine, memory=dataclasses.replace(machine.memory, **changed))  # type: ignore[arg-type]


def with_cores(machine: Machine, online: int, allowed: int, usable: float) -> Machine:
    cores = dataclasses.replace(
        machine.cores, online=Fact(online, "x"), allowed=Fact(allowed, "x"), usable=Fact(usable, "x")
    )
    return dataclasses.replace(machine, cores=cores)


def with_bound(machine: Machine, bound: Bound) -> Machine:
    return dataclasses.replace(machine, budget=Budget((bound, *machine.budget.bounds)))


def commit_short(machine: Machine) -> Machine:
    return with_memory(machine, commit_enforced=True, commit_limit=4 * GIB, commit_charge=3 * GIB)


def test_a_ulimit_is_no_reason_for_swap_and_hides_no_smaller_group(machine: ReadMachine) -> None:
    tight = Bound("address-space limit", 4 * GIB, GIB, "ulimit")
    assert "no-swap" not in verdicts(with_bound(with_memory(machine("bare_metal"), swap_total=0), tight))
    assert "8 GiB of the 252 GiB" in verdicts(with_bound(machine("docker_v2"), tight))["ram-hidden"].what


def test_a_group_that_may_not_swap_has_no_swap(recorded: Recorded, machine: ReadMachine) -> None:
    found = verdicts(with_memory(machine("docker_v2"), swap_total=32 * GIB))["no-swap"]
    assert "control group may use no swap" in found.what
    assert found.fix[-1] == "$ docker run --memory-swap=-1 …"
    source = recorded("docker_v2")
    source.path("/sys/fs/cgroup/memory.swap.max").write_text("max")
    free = machine_from(source, NO_DRIVER, software(), "/data")
    assert "no-swap" not in verdicts(with_memory(free, swap_total=32 * GIB))


def test_a_group_that_throttles_does_not_kill(machine: ReadMachine) -> None:
    assert "slows it down" in verdicts(machine("nested"))["ram-hidden"].why
    assert "kills it" in verdicts(machine("docker_v2"))["ram-hidden"].why


def test_no_more_memory_is_suggested_than_there_is(machine: ReadMachine) -> None:
    small = with_memory(machine("docker_v2"), ram_total=10 * GIB)
    assert verdicts(small)["ram-hidden"].fix[-1] == "$ docker run --memory=10g …"
    nearly = with_memory(machine("docker_v2"), ram_total=8 * GIB + MIB)
    assert "take a machine with more RAM" in verdicts(nearly)["ram-hidden"].fix[0]


def test_no_more_shared_memory_is_suggested_than_there_is(machine: ReadMachine) -> None:
    container = machine("docker_v2")  # may use 8 GiB
    assert "$ docker run --shm-size=6g …" in verdicts(container, Load(4, 750 * MIB))["shm-small"].fix
    assert "more than the memory there is" in verdicts(container, Load(8, GIB))["shm-small"].fix[0]


def test_no_more_cores_are_suggested_than_there_are(machine: ReadMachine) -> None:
    container = with_cores(machine("docker_v2"), 4, 4, 1.5)
    assert verdicts(container)["few-cores"].fix[-1] == "$ docker run --cpus=4 …"
    whole = with_cores(machine("docker_v2"), 1, 1, 1.0)
    assert verdicts(whole)["few-cores"].fix == ("Take a machine with more cores.",)
    assert verdicts(whole)["few-cores"].what == "Only 1 core can be used."


def test_an_affinity_is_called_one(machine: ReadMachine) -> None:
    for name in ("bare_metal", "docker_v2"):
        (line,) = verdicts(with_cores(machine(name), 16, 1, 1.0))["few-cores"].fix
        assert "affinity binds this process to 1 of 16 cores" in line


def test_a_quota_outside_of_a_container_is_called_one(machine: ReadMachine) -> None:
    (line,) = verdicts(with_cores(machine("bare_metal"), 16, 16, 1.0))["few-cores"].fix
    assert "CPU quota" in line


@pytest.mark.parametrize("name", ["slurm", "docker_v2"])
def test_nobody_is_told_to_sudo_where_that_is_somebody_else_s(machine: ReadMachine, name: str) -> None:
    facts = commit_short(with_memory(machine(name), swap_total=0))
    facts = dataclasses.replace(facts, shm=dataclasses.replace(facts.shm, free=Fact(1, "x")))
    found = verdicts(facts, Load(8))
    assert {"commit-short", "shm-small"} <= set(found)
    assert not [line for verdict in found.values() for line in verdict.fix if "sudo" in line]


def test_swap_is_added_beside_what_there_is(machine: ReadMachine) -> None:
    facts = commit_short(machine("bare_metal"))
    first = verdicts(with_memory(facts, swap_total=0), Load(8))["commit-short"].fix
    second = verdicts(with_memory(facts, swap_total=64 * GIB), Load(8))["commit-short"].fix
    assert "$ sudo fallocate -l 3G /swapfile" in first
    assert "$ sudo fallocate -l 3G /swapfile2" in second
    assert "$ sudo swapon /swapfile2" in second


def test_commands_are_single_ones(machine: ReadMachine) -> None:
    for name in ("bare_metal", "docker_v2", "nested", "slurm", "wsl", "no_limit", "swapping"):
        for verdict in judge(commit_short(machine(name))):
            assert not [line for line in verdict.fix if "&&" in line]


def test_disks_are_looked_into_by_the_system_s_own_means(machine: ReadMachine) -> None:
    facts = machine("no_limit")
    odd = dataclasses.replace(facts, disk=dataclasses.replace(facts.disk, path="/data/my runs; reboot"))
    for system, words in {
        "linux": "du -xh --max-depth=2 '/data/my runs; reboot' |",
        "macos": "du -xh -d 2 '/data/my runs; reboot' |",
        "windows": "Settings, System, Storage",
    }.items():
        there = dataclasses.replace(odd, surroundings=dataclasses.replace(odd.surroundings, system=system))
        assert words in " ".join(verdicts(there)["disk-full"].fix)


def test_one_worker_is_one_worker(machine: ReadMachine) -> None:
    facts = commit_short(with_memory(machine("docker_v2"), swap_total=0))
    tight = with_memory(facts, commit_enforced=True, commit_limit=4 * GIB, commit_charge=4 * GIB - 230 * MIB)
    one = verdicts(tight, Load(2, 16 * MIB))
    assert "at most 1 loader worker," in one["commit-short"].fix[0]
    text = " ".join(line for verdict in one.values() for line in (verdict.what, *verdict.fix))
    assert not re.search(r"\b1 (loader )?workers|at most 0", text)
