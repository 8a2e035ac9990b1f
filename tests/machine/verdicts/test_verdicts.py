from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from oomph.machine import Load, Machine, Severity, Verdict, judge
from oomph.machine._fact import Fact
from oomph.machine._machine import machine_from
from oomph.machine._source import Source
from oomph.report import DoctorReport, emit
from oomph.units import GIB, MIB

from ..recordings import NO_DRIVER, software

ReadMachine = Callable[[str], Machine]


def named(machine: Machine, name: str, load: Load | None = None) -> Verdict:
    (found,) = [verdict for verdict in judge(machine, load) if verdict.name == name]
    return found


def names(machine: Machine, load: Load | None = None) -> list[str]:
    return [verdict.name for verdict in judge(machine, load)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bare_metal", []),
        ("docker_v2", ["shm-small", "killed-before", "no-swap", "ram-hidden"]),
        ("nested", ["ram-hidden"]),
        ("cgroup_v1", ["ram-hidden"]),
        ("slurm", ["killed-before", "ram-hidden"]),
        ("wsl", []),
        ("no_limit", ["no-swap", "disk-full"]),
        ("swapping", ["swapping", "memory-pressure"]),
    ],
)
def test_each_machine_gets_its_verdicts_worst_first(machine: ReadMachine, name: str, expected: list[str]) -> None:
    assert names(machine(name)) == expected


def test_verdicts_say_what_why_and_how_with_numbers_and_sources(machine: ReadMachine) -> None:
    for name in ("docker_v2", "nested", "slurm", "no_limit", "swapping"):
        for verdict in judge(machine(name)):
            assert verdict.what.endswith(".")
            assert any(character.isdigit() for character in verdict.what)
            assert verdict.why
            assert verdict.fix
            assert all(verdict.sources)


def test_the_order_is_by_severity(machine: ReadMachine) -> None:
    found = [verdict.severity for verdict in judge(machine("docker_v2"))]
    assert found == sorted(found, key=list(Severity).index)


def test_shared_memory_is_judged_by_what_a_full_prefetch_holds(machine: ReadMachine) -> None:
    container = machine("docker_v2")
    verdict = named(container, "shm-small", Load(workers=4, batch=10 * MIB))
    assert "80 MiB" in verdict.what
    assert "$ docker run --shm-size=1g …" in verdict.fix
    assert "at most 3 workers" in verdict.fix[-1]
    assert "shm-small" not in names(container, Load(workers=3, batch=10 * MIB))
    assert "shm-small" not in names(container, Load(workers=0))


def test_outside_of_a_container_shared_memory_is_remounted(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    small = dataclasses.replace(facts.shm, free=Fact(10 * MIB, "statvfs"))
    verdict = named(dataclasses.replace(facts, shm=small), "shm-small")
    assert verdict.fix[0].startswith("$ sudo mount -o remount,size=")


def test_swap_is_made_where_it_can_be_made(machine: ReadMachine) -> None:
    assert any("mkswap" in line for line in named(machine("no_limit"), "no-swap").fix)
    assert any("--memory-swap" in line for line in named(machine("docker_v2"), "no-swap").fix)
    wsl = machine("wsl")
    bare = dataclasses.replace(wsl, memory=dataclasses.replace(wsl.memory, swap_total=Fact(0, "x")))
    assert any(".wslconfig" in line for line in named(bare, "no-swap").fix)


def test_swapping_states_its_rate(machine: ReadMachine) -> None:
    verdict = named(machine("swapping"), "swapping")
    assert "150 MiB/s" in verdict.what
    assert "8.5 GiB" in verdict.what


def test_a_strict_commit_limit_counts_spawned_workers(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    strict = dataclasses.replace(
        facts.memory,
        commit_enforced=Fact(True, "x"),
        commit_limit=Fact(4 * GIB, "x"),
        commit_charge=Fact(3 * GIB, "x"),
    )
    tight = dataclasses.replace(facts, memory=strict)
    verdict = named(tight, "commit-short", Load(workers=8))
    assert "at most 4 loader workers" in verdict.fix[0]
    assert "commit-short" not in names(tight, Load(workers=4))


def test_hidden_ram_names_both_sizes(machine: ReadMachine) -> None:
    verdict = named(machine("docker_v2"), "ram-hidden")
    assert "8 GiB of the 252 GiB" in verdict.what
    assert named(machine("slurm"), "ram-hidden").fix[-1] == "$ sbatch --mem=64G …"


def test_a_nearly_full_disk_is_named(machine: ReadMachine) -> None:
    assert named(machine("no_limit"), "disk-full").what == "/data has 3 GiB free of 30 GiB."


def test_one_core_is_too_few_and_more_workers_than_cores_is_waste(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    one = dataclasses.replace(facts, cores=dataclasses.replace(facts.cores, usable=Fact(1.0, "x")))
    assert names(one) == ["few-cores"]
    assert names(facts, Load(workers=17)) == ["more-workers-than-cores"]


def test_a_machine_of_which_nothing_is_known_is_not_accused_and_not_called_healthy(tmp_path: Path) -> None:
    facts = machine_from(Source.recorded(tmp_path), NO_DRIVER, software(), "/data")
    assert facts.budget.bounds == ()
    (verdict,) = judge(facts)
    assert (verdict.name, verdict.severity) == ("memory-unknown", Severity.NOTE)
    assert "/proc/meminfo" in verdict.what
    out = io.StringIO()
    emit(DoctorReport(facts, (verdict,)), as_json=False, stream=out)
    assert "Healthy" not in out.getvalue()
    assert "nothing that limits memory could be read" in out.getvalue()
