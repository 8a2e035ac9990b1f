from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from oomph.machine import Machine, Verdict, diagnose_machine
from oomph.machine.gpu import parse_driver
from oomph.units import GIB, MIB

from ..recordings import H200, h200, on_gpu

ReadMachine = Callable[[str], Machine]


def verdicts(machine: Machine) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in diagnose_machine(machine)}


def process(pid: int, used: int | None, *, graphics: bool = False) -> dict[str, Any]:
    return {"pid": pid, "used": used, "name": {"value": f"/usr/bin/p{pid}"}, "graphics": graphics}


def memory_verdict(machine: Machine, *processes: dict[str, Any], used: int = 20 * GIB) -> Verdict | None:
    memory = {"value": {"total": 80 * GIB, "free": 80 * GIB - used, "used": used}}
    driver = parse_driver(h200(processes={"value": list(processes)}, memory=memory))
    return verdicts(on_gpu(machine, driver)).get("gpu-memory-used")


def test_processes_that_use_gpu_memory_are_named(machine: ReadMachine) -> None:
    verdict = verdicts(on_gpu(machine("bare_metal"), parse_driver(H200)))["gpu-memory-used"]
    assert "python3 (pid 426, 3.51 GiB)" in verdict.summary
    assert verdict.fix == ("$ kill 426",)


def test_memory_of_this_process_is_not_reported(machine: ReadMachine) -> None:
    this_process = {"pid": os.getpid(), "used": 3 * GIB, "name": {"value": "python"}}
    driver = parse_driver(h200(processes={"value": [this_process]}))
    assert verdicts(on_gpu(machine("bare_metal"), driver)) == {}


def test_hidden_processes_are_reported(machine: ReadMachine) -> None:
    driver = parse_driver(h200(processes={"value": []}))
    verdict = verdicts(on_gpu(machine("bare_metal"), driver))["gpu-memory-used"]
    assert "not visible" in verdict.summary


def test_memory_of_other_processes_is_summed_without_a_desktop(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    assert memory_verdict(facts, process(5, 300 * MIB, graphics=True), process(6, 100 * MIB, graphics=True)) is None
    assert memory_verdict(facts, process(5, 300 * MIB)) is None  # the driver uses the rest
    both = memory_verdict(facts, process(5, 300 * MIB), process(6, 300 * MIB), process(7, 20 * MIB, graphics=True))
    assert both is not None
    assert both.summary.startswith("600 MiB of the 80 GiB")
    assert both.fix == ("$ kill 5 6",)
    unknown_size = memory_verdict(facts, process(5, None))
    assert unknown_size is not None
    assert unknown_size.summary.startswith("20 GiB of")


def test_fix_for_other_processes_depends_on_the_system(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    windows = dataclasses.replace(facts, environment=dataclasses.replace(facts.environment, system="windows"))
    verdict = memory_verdict(windows, process(5, GIB), process(6, GIB))
    assert verdict is not None
    assert verdict.fix == ("$ taskkill /PID 5 /PID 6",)
    for name, text in (("wsl", "on Windows"), ("docker_v2", "outside the container")):
        hidden = memory_verdict(machine(name), used=3 * GIB)
        assert hidden is not None
        assert text in hidden.fix[0]


def test_failed_driver_and_lost_gpu_are_reported(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    failed = parse_driver({"state": "driver failed", "reason": "Driver/library version mismatch"})
    assert "mismatch" in verdicts(on_gpu(facts, failed))["driver-failed"].summary
    lost = parse_driver(h200(name={"error": "GPU is lost"}, memory={"error": "GPU is lost"}))
    assert "GPU is lost" in verdicts(on_gpu(facts, lost))["gpu-lost"].summary


def test_throttled_and_partitioned_gpus_are_notes(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    hot = verdicts(on_gpu(facts, parse_driver(h200(throttle_reasons={"value": 0x20}))))
    assert "hot GPU" in hot["gpu-throttled"].summary
    mig = verdicts(on_gpu(facts, parse_driver(h200(mig={"value": True}))))
    assert (hot["gpu-throttled"].severity.value, mig["gpu-mig"].severity.value) == ("note", "note")


def test_restart_in_a_container_needs_no_sudo(machine: ReadMachine) -> None:
    failed = parse_driver({"state": "driver failed", "reason": "mismatch"})
    for name in ("docker_v2", "slurm"):
        assert not any("sudo" in line for line in verdicts(on_gpu(machine(name), failed))["driver-failed"].fix)
    assert "$ sudo reboot" in verdicts(on_gpu(machine("bare_metal"), failed))["driver-failed"].fix
