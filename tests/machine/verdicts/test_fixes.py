"""Fixes fit the machine: they suggest no more than it has, and only what the user can do there."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from oomph.machine import Bound, Budget, DataLoaderConfig, Fact, Machine, Verdict, diagnose_machine
from oomph.machine._machine import read_linux_machine
from oomph.machine.host import Source
from oomph.units import GIB, MIB

from ..recordings import NO_DRIVER, software

ReadMachine = Callable[[str], Machine]
Recorded = Callable[[str], Source]


def verdicts(machine: Machine, loader: DataLoaderConfig | None = None) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in diagnose_machine(machine, loader)}


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


def with_little_commit(machine: Machine) -> Machine:
    return with_memory(machine, commit_enforced=True, commit_limit=4 * GIB, commit_charge=3 * GIB)


def test_ulimit_does_not_ask_for_swap_or_hide_a_cgroup_limit(machine: ReadMachine) -> None:
    tight = Bound("address-space limit", 4 * GIB, GIB, "ulimit")
    assert "no-swap" not in verdicts(with_bound(with_memory(machine("bare_metal"), swap_total=0), tight))
    assert "8 GiB of the 252 GiB" in verdicts(with_bound(machine("docker_v2"), tight))["cgroup-limit"].summary


def test_cgroup_that_may_not_swap_is_reported(recorded: Recorded, machine: ReadMachine) -> None:
    verdict = verdicts(with_memory(machine("docker_v2"), swap_total=32 * GIB))["no-swap"]
    assert "cgroup of this process may not use swap" in verdict.summary
    assert verdict.fix[-1] == "$ docker run --memory-swap=-1 …"
    source = recorded("docker_v2")
    source.path("/sys/fs/cgroup/memory.swap.max").write_text("max")
    unlimited = read_linux_machine(source, NO_DRIVER, software(), "/data")
    assert "no-swap" not in verdicts(with_memory(unlimited, swap_total=32 * GIB))


def test_throttle_and_limit_have_different_effects(machine: ReadMachine) -> None:
    assert "throttles it" in verdicts(machine("nested"))["cgroup-limit"].why
    assert "kills it" in verdicts(machine("docker_v2"))["cgroup-limit"].why


def test_suggested_memory_is_at_most_the_ram(machine: ReadMachine) -> None:
    small = with_memory(machine("docker_v2"), ram_total=10 * GIB)
    assert verdicts(small)["cgroup-limit"].fix[-1] == "$ docker run --memory=10g …"
    nearly = with_memory(machine("docker_v2"), ram_total=8 * GIB + MIB)
    assert "use a machine with more RAM" in verdicts(nearly)["cgroup-limit"].fix[0]


def test_suggested_shm_is_at_most_the_memory(machine: ReadMachine) -> None:
    container = machine("docker_v2")  # may use 8 GiB
    assert "$ docker run --shm-size=8g …" in verdicts(container, DataLoaderConfig(4, 750 * MIB))["shm-small"].fix
    assert "more than the memory of this machine" in verdicts(container, DataLoaderConfig(8, GIB))["shm-small"].fix[0]


def test_suggested_cores_are_at_most_those_online(machine: ReadMachine) -> None:
    container = with_cores(machine("docker_v2"), 4, 4, 1.5)
    assert verdicts(container)["few-cores"].fix[-1] == "$ docker run --cpus=4 …"
    whole = with_cores(machine("docker_v2"), 1, 1, 1.0)
    assert verdicts(whole)["few-cores"].fix == ("Use a machine with more cores.",)
    assert verdicts(whole)["few-cores"].summary == "Only 1 core can be used."


def test_affinity_is_named_as_the_cause(machine: ReadMachine) -> None:
    for name in ("bare_metal", "docker_v2"):
        (line,) = verdicts(with_cores(machine(name), 16, 1, 1.0))["few-cores"].fix
        assert "affinity allows this process 1 of 16 cores" in line


def test_quota_is_named_as_the_cause(machine: ReadMachine) -> None:
    (line,) = verdicts(with_cores(machine("bare_metal"), 16, 16, 1.0))["few-cores"].fix
    assert "CPU quota" in line


@pytest.mark.parametrize("name", ["slurm", "docker_v2"])
def test_users_without_root_get_no_sudo_commands(machine: ReadMachine, name: str) -> None:
    facts = with_little_commit(with_memory(machine(name), swap_total=0))
    facts = dataclasses.replace(facts, shm=dataclasses.replace(facts.shm, free=Fact(1, "x")))
    by_name = verdicts(facts, DataLoaderConfig(8))
    assert {"commit-limit", "shm-small"} <= set(by_name)
    assert not [line for verdict in by_name.values() for line in verdict.fix if "sudo" in line]


def test_second_swap_file_gets_another_name(machine: ReadMachine) -> None:
    facts = with_little_commit(machine("bare_metal"))
    first = verdicts(with_memory(facts, swap_total=0), DataLoaderConfig(8))["commit-limit"].fix
    second = verdicts(with_memory(facts, swap_total=64 * GIB), DataLoaderConfig(8))["commit-limit"].fix
    assert "$ sudo fallocate -l 3G /swapfile" in first
    assert "$ sudo fallocate -l 3G /swapfile2" in second
    assert "$ sudo swapon /swapfile2" in second


def test_commands_are_not_chained(machine: ReadMachine) -> None:
    for name in ("bare_metal", "docker_v2", "nested", "slurm", "wsl", "no_limit", "swapping"):
        for verdict in diagnose_machine(with_little_commit(machine(name))):
            assert not [line for line in verdict.fix if "&&" in line]


def test_disk_usage_is_shown_by_the_system_s_own_tool(machine: ReadMachine) -> None:
    facts = machine("no_limit")
    odd = dataclasses.replace(facts, disk=dataclasses.replace(facts.disk, path="/data/my runs; reboot"))
    for system, text in {
        "linux": "du -xh --max-depth=2 '/data/my runs; reboot' |",
        "macos": "du -xh -d 2 '/data/my runs; reboot' |",
        "windows": "Settings, System, Storage",
    }.items():
        on_system = dataclasses.replace(odd, environment=dataclasses.replace(odd.environment, system=system))
        assert text in " ".join(verdicts(on_system)["disk-full"].fix)


def test_single_worker_is_singular(machine: ReadMachine) -> None:
    facts = with_little_commit(with_memory(machine("docker_v2"), swap_total=0))
    tight = with_memory(facts, commit_enforced=True, commit_limit=4 * GIB, commit_charge=4 * GIB - 230 * MIB)
    by_name = verdicts(tight, DataLoaderConfig(2, 16 * MIB))
    assert "at most 1 loader worker," in by_name["commit-limit"].fix[0]
    text = " ".join(line for verdict in by_name.values() for line in (verdict.summary, *verdict.fix))
    assert not re.search(r"\b1 (loader )?workers|at most 0", text)
