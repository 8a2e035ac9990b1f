from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from oomph.machine import DataLoaderConfig, Fact, Machine, Severity, Verdict, diagnose_machine
from oomph.machine._machine import read_linux_machine
from oomph.machine.gpu import parse_driver
from oomph.machine.host import Source
from oomph.report import DoctorReport, emit
from oomph.units import GIB, MIB

from ..recordings import H200, NO_DRIVER, on_gpu, software

ReadMachine = Callable[[str], Machine]


def named(machine: Machine, name: str, loader: DataLoaderConfig | None = None) -> Verdict:
    (verdict,) = [verdict for verdict in diagnose_machine(machine, loader) if verdict.name == name]
    return verdict


def names(machine: Machine, loader: DataLoaderConfig | None = None) -> list[str]:
    return [verdict.name for verdict in diagnose_machine(machine, loader)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bare_metal", []),
        ("docker_v2", ["shm-small", "past-oom-kills", "no-swap", "cgroup-limit"]),
        ("nested", ["cgroup-limit"]),
        ("cgroup_v1", ["cgroup-limit"]),
        ("slurm", ["past-oom-kills", "cgroup-limit"]),
        ("wsl", []),
        ("no_limit", ["no-swap", "disk-full"]),
        ("swapping", ["swapping", "memory-pressure"]),
    ],
)
def test_recorded_machines_get_their_verdicts(machine: ReadMachine, name: str, expected: list[str]) -> None:
    assert names(machine(name)) == expected


def test_verdicts_have_numbers_and_sources(machine: ReadMachine) -> None:
    for name in ("docker_v2", "nested", "slurm", "no_limit", "swapping"):
        for verdict in diagnose_machine(machine(name)):
            assert verdict.summary.endswith(".")
            assert any(character.isdigit() for character in verdict.summary)
            assert verdict.why
            assert verdict.fix
            assert all(verdict.sources)


def test_verdicts_are_sorted_by_severity(machine: ReadMachine) -> None:
    severities = [verdict.severity for verdict in diagnose_machine(machine("docker_v2"))]
    assert severities == sorted(severities, key=list(Severity).index)


def test_shm_must_hold_a_full_prefetch_and_two_more_batches(machine: ReadMachine) -> None:
    container = machine("docker_v2")
    verdict = named(container, "shm-small", DataLoaderConfig(workers=4, batch_bytes=10 * MIB))
    assert "100 MiB" in verdict.summary
    assert "$ docker run --shm-size=1g …" in verdict.fix
    assert "Or use at most 2 workers." in verdict.fix
    assert verdict.fix[-1] == "$ oomph lint . --select prefetch-over-budget --budget 64MiB"
    assert "shm-small" not in names(container, DataLoaderConfig(workers=2, batch_bytes=10 * MIB))
    assert "shm-small" not in names(container, DataLoaderConfig(workers=0))


def test_shm_outside_a_container_is_remounted(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    small = dataclasses.replace(facts.shm, free=Fact(10 * MIB, "statvfs"))
    verdict = named(dataclasses.replace(facts, shm=small), "shm-small")
    assert verdict.fix[0].startswith("$ sudo mount -o remount,size=")


def test_swap_fix_depends_on_the_environment(machine: ReadMachine) -> None:
    assert any("mkswap" in line for line in named(machine("no_limit"), "no-swap").fix)
    assert any("--memory-swap" in line for line in named(machine("docker_v2"), "no-swap").fix)
    wsl = machine("wsl")
    bare = dataclasses.replace(wsl, memory=dataclasses.replace(wsl.memory, swap_total=Fact(0, "x")))
    assert any(".wslconfig" in line for line in named(bare, "no-swap").fix)


def test_swapping_is_reported_with_its_rate(machine: ReadMachine) -> None:
    verdict = named(machine("swapping"), "swapping")
    assert "150 MiB/s" in verdict.summary
    assert "8.5 GiB" in verdict.summary


def test_enforced_commit_limit_counts_spawned_workers(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    strict = dataclasses.replace(
        facts.memory,
        commit_enforced=Fact(True, "x"),
        commit_limit=Fact(4 * GIB, "x"),
        commit_charge=Fact(3 * GIB, "x"),
    )
    tight = dataclasses.replace(facts, memory=strict)
    verdict = named(tight, "commit-limit", DataLoaderConfig(workers=8))
    assert "at most 4 loader workers" in verdict.fix[0]
    assert "commit-limit" not in names(tight, DataLoaderConfig(workers=4))


def test_cgroup_limit_is_reported_with_both_sizes(machine: ReadMachine) -> None:
    verdict = named(machine("docker_v2"), "cgroup-limit")
    assert "8 GiB of the 252 GiB" in verdict.summary
    assert named(machine("slurm"), "cgroup-limit").fix[-1] == "$ sbatch --mem=64G …"


def test_nearly_full_disk_is_reported(machine: ReadMachine) -> None:
    assert named(machine("no_limit"), "disk-full").summary == "/data has 3 GiB free of 30 GiB."


def test_few_cores_and_too_many_workers_are_reported(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    single = dataclasses.replace(facts, cores=dataclasses.replace(facts.cores, usable=Fact(1.0, "x")))
    assert names(single) == ["few-cores"]
    assert names(facts, DataLoaderConfig(workers=17)) == ["more-workers-than-cores"]


def test_unreadable_machine_is_not_called_healthy(tmp_path: Path) -> None:
    facts = read_linux_machine(Source.recorded(tmp_path), NO_DRIVER, software(), "/data")
    assert facts.budget.bounds == ()
    (verdict,) = diagnose_machine(facts)
    assert (verdict.name, verdict.severity) == ("memory-unknown", Severity.NOTE)
    assert "/proc/meminfo" in verdict.summary
    out = io.StringIO()
    emit(DoctorReport(facts, (verdict,)), as_json=False, stream=out)
    assert "Healthy" not in out.getvalue()
    assert "no memory limit could be read" in out.getvalue()


def test_few_cores_for_many_gpus_are_reported(machine: ReadMachine) -> None:
    eight = parse_driver({**H200, "devices": H200["devices"] * 8})
    assert "16 cores for 8 GPUs" in named(on_gpu(machine("bare_metal"), eight), "few-cores").summary


def test_address_space_limit_below_the_reservation_of_cuda_fails(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    limits = dataclasses.replace(facts.limits, address_space=Fact(32 * GIB, "x"))
    limited = dataclasses.replace(on_gpu(facts, parse_driver(H200)), limits=limits)
    assert named(limited, "address-space-limit").severity is Severity.FAILS
