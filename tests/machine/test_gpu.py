"""The driver's answers: recorded on an H200 (driver 580.159.04, 2026-11-15), changed where a case needs it."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from oomph.machine import DriverState, Graphics, Machine, Verdict, judge
from oomph.machine._fact import Fact, Unknown
from oomph.machine._gpu import read_graphics
from oomph.machine._nvml import ask_driver
from oomph.units import GIB, MIB

from .recordings import RECORDED, software

H200: dict[str, Any] = json.loads((RECORDED / "nvml_h200.json").read_text())


def answers(**device: Any) -> dict[str, Any]:
    changed = copy.deepcopy(H200)
    changed["devices"][0].update(device)
    return changed


def on_gpu(machine: Machine, graphics: Graphics, **fields: Fact[str]) -> Machine:
    cuda = {
        "torch": Fact("2.11.0+cu130", "v"),
        "torch_cuda": Fact("13.0", "v"),
        "torchvision": Fact("0.26.0+cu130", "v"),
    }
    wants = {"torchvision_wants": Fact("2.11.0", "v")}
    return dataclasses.replace(machine, graphics=graphics, software=software(**{**cuda, **wants, **fields}))


def verdicts(machine: Machine) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in judge(machine)}


def test_a_real_gpu_is_read() -> None:
    graphics = read_graphics(H200)
    (gpu,) = graphics.gpus
    assert (graphics.state, graphics.driver.known, graphics.cuda.known) == (DriverState.READY, "580.159.04", "13.0")
    assert (gpu.name.known, gpu.compute_capability.known) == ("NVIDIA H200", "9.0")
    assert (gpu.total.known, gpu.used.known) == (143771 * MIB, 4418568192)
    assert (gpu.ecc.known, gpu.mig.known, gpu.slowdowns.known) == (True, False, ())
    assert gpu.processes.known is not None
    assert (gpu.processes.known[0].name.known, gpu.processes.known[0].used.known) == ("python3", 3764387840)


def test_no_driver_and_no_gpu_are_states() -> None:
    assert read_graphics({"state": "no driver", "why": "not installed"}).state is DriverState.NO_DRIVER
    empty = {"state": "no gpu", "why": "none", "driver": {"value": "1"}, "cuda": {"value": 12040}, "devices": []}
    assert read_graphics(empty).cuda.known == "12.4"


def test_this_machine_s_driver_is_asked_for_real() -> None:
    assert ask_driver()["state"] in {"no driver", "ready", "no gpu", "driver failed"}


def test_processes_hidden_by_a_container_are_unknown_and_not_none() -> None:
    hidden = read_graphics(answers(processes={"value": []})).gpus[0].processes.value
    assert isinstance(hidden, Unknown)
    idle = answers(processes={"value": []}, memory={"value": {"total": 80 * GIB, "free": 79 * GIB, "used": GIB // 2}})
    assert read_graphics(idle).gpus[0].processes.value == ()


def test_what_the_driver_refuses_is_unknown_with_its_words() -> None:
    gpu = read_graphics(answers(ecc={"error": "Not Supported"}, memory={"error": "Unknown Error"})).gpus[0]
    assert gpu.ecc.value == Unknown("Not Supported")
    assert gpu.total.value == Unknown("Unknown Error")


def test_only_slowdowns_that_cost_speed_count() -> None:
    assert read_graphics(answers(slowdown={"value": 0x01})).gpus[0].slowdowns.known == ()  # idle
    assert read_graphics(answers(slowdown={"value": 0x24})).gpus[0].slowdowns.known == ("power cap", "hot GPU")


def test_memory_held_by_others_is_named(machine: Callable[[str], Machine]) -> None:
    held = verdicts(on_gpu(machine("bare_metal"), read_graphics(H200)))["gpu-held"]
    assert "python3 (pid 426, 3.51 GiB)" in held.what
    assert held.fix == ("$ kill 426",)


def test_memory_held_by_ourselves_is_not_complained_about(machine: Callable[[str], Machine]) -> None:
    own = answers(processes={"value": [{"pid": os.getpid(), "used": 3 * GIB, "name": {"value": "python"}}]})
    assert verdicts(on_gpu(machine("bare_metal"), read_graphics(own))) == {}


def test_memory_held_by_the_invisible_is_reported_as_such(machine: Callable[[str], Machine]) -> None:
    hidden = read_graphics(answers(processes={"value": []}))
    assert "can't be seen" in verdicts(on_gpu(machine("bare_metal"), hidden))["gpu-held"].what


@pytest.mark.parametrize(
    ("fields", "name", "words"),
    [
        ({"torch": Fact("2.13.0+cpu", "v"), "torch_cuda": Fact("none", "v")}, "torch-without-cuda", "without CUDA"),
        ({"torch_cuda": Fact("14.1", "v")}, "driver-old", "supports CUDA 13.0 at most"),
        ({"torch": Fact(Unknown("not installed"), "v")}, "torch-missing", "not installed"),
        ({"torch": Fact(Unknown("Permission denied"), "v")}, "torch-unreadable", "can't be read: Permission denied"),
        ({"torchvision_wants": Fact("2.9.0", "v")}, "torchvision-broken", "built for torch 2.9.0"),
    ],
)
def test_a_torch_that_does_not_fit_is_told(
    machine: Callable[[str], Machine], fields: dict[str, Fact[str]], name: str, words: str
) -> None:
    assert words in verdicts(on_gpu(machine("bare_metal"), read_graphics(H200), **fields))[name].what


def test_a_gpu_too_old_for_the_build_is_told(machine: Callable[[str], Machine]) -> None:
    pascal = read_graphics(answers(capability={"value": [6, 1]}))
    assert "6.1" in verdicts(on_gpu(machine("bare_metal"), pascal))["gpu-old"].what


def test_a_gpu_too_new_for_the_build_is_told(machine: Callable[[str], Machine]) -> None:
    blackwell = read_graphics(answers(capability={"value": [12, 0]}))
    facts = machine("bare_metal")
    new = verdicts(on_gpu(facts, blackwell, torch_cuda=Fact("12.6", "v")))["gpu-new"]
    assert "12.8 or newer" in new.fix[0]
    assert "gpu-new" not in verdicts(on_gpu(facts, blackwell, torch_cuda=Fact("12.8", "v")))


def test_versions_that_are_none_are_not_judged(machine: Callable[[str], Machine]) -> None:
    graphics = dataclasses.replace(read_graphics(H200), cuda=Fact("new", "x"))
    odd = dataclasses.replace(graphics.gpus[0], compute_capability=Fact("ninety", "x"))
    facts = on_gpu(machine("bare_metal"), dataclasses.replace(graphics, gpus=(odd,)), torch_cuda=Fact("abc", "v"))
    assert set(verdicts(facts)) == {"gpu-held"}


def test_a_cuda_torchvision_beside_a_cpu_torch_is_broken(machine: Callable[[str], Machine]) -> None:
    facts = machine("bare_metal")
    pair = software(torchvision=Fact("0.28.0+cu130", "v"))
    assert "torchvision::nms" in verdicts(dataclasses.replace(facts, software=pair))["torchvision-broken"].what


def test_few_cores_for_many_gpus(machine: Callable[[str], Machine]) -> None:
    eight = {**H200, "devices": H200["devices"] * 8}
    assert "16 cores for 8 GPUs" in verdicts(on_gpu(machine("bare_metal"), read_graphics(eight)))["few-cores"].what


def test_a_failed_driver_and_a_hot_gpu_are_told(machine: Callable[[str], Machine]) -> None:
    facts = machine("bare_metal")
    failed = read_graphics({"state": "driver failed", "why": "Driver/library version mismatch"})
    assert "mismatch" in verdicts(on_gpu(facts, failed))["driver-failed"].what
    lost = read_graphics(answers(name={"error": "GPU is lost"}, memory={"error": "GPU is lost"}))
    assert "GPU is lost" in verdicts(on_gpu(facts, lost))["gpu-lost"].what
    hot = read_graphics(answers(slowdown={"value": 0x20}))
    assert "hot GPU" in verdicts(on_gpu(facts, hot))["gpu-slow"].what


def test_an_address_limit_below_what_cuda_reserves_fails(machine: Callable[[str], Machine]) -> None:
    facts = machine("bare_metal")
    limits = dataclasses.replace(facts.limits, address_space=Fact(32 * GIB, "x"))
    limited = dataclasses.replace(on_gpu(facts, read_graphics(H200)), limits=limits)
    assert verdicts(limited)["address-limit"].severity.value == "fails"
