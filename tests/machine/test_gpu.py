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
from oomph.machine._software import ImportCheck
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


def process(pid: int, used: int | None, *, graphics: bool = False) -> dict[str, Any]:
    return {"pid": pid, "used": used, "name": {"value": f"/usr/bin/p{pid}"}, "graphics": graphics}


def held(facts: Machine, *processes: dict[str, Any], used: int = 20 * GIB) -> Verdict | None:
    memory = {"value": {"total": 80 * GIB, "free": 80 * GIB - used, "used": used}}
    graphics = read_graphics(answers(processes={"value": list(processes)}, memory=memory))
    return verdicts(on_gpu(facts, graphics)).get("gpu-held")


def test_what_others_hold_is_summed_and_a_desktop_is_left_out(machine: Callable[[str], Machine]) -> None:
    facts = machine("bare_metal")
    assert held(facts, process(5, 300 * MIB, graphics=True), process(6, 100 * MIB, graphics=True)) is None
    assert held(facts, process(5, 300 * MIB)) is None  # the rest is the driver's own
    both = held(facts, process(5, 300 * MIB), process(6, 300 * MIB), process(7, 20 * MIB, graphics=True))
    assert both is not None
    assert both.what.startswith("600 MiB of the 80 GiB")
    assert both.fix == ("$ kill 5 6",)
    untold = held(facts, process(5, None))
    assert untold is not None
    assert untold.what.startswith("20 GiB of")


def test_holders_are_ended_as_the_system_does_it(machine: Callable[[str], Machine]) -> None:
    facts = machine("bare_metal")
    windows = dataclasses.replace(facts, surroundings=dataclasses.replace(facts.surroundings, system="windows"))
    found = held(windows, process(5, GIB), process(6, GIB))
    assert found is not None
    assert found.fix == ("$ taskkill /PID 5 /PID 6",)
    for name, word in (("wsl", "Windows side"), ("docker_v2", "outside of the container")):
        hidden = held(machine(name), used=3 * GIB)
        assert hidden is not None
        assert word in hidden.fix[0]


def test_a_container_that_was_started_without_its_gpu_is_told(machine: Callable[[str], Machine]) -> None:
    no_driver = read_graphics({"state": "no driver", "why": "not installed"})
    found = verdicts(on_gpu(machine("docker_v2"), no_driver))["gpu-not-passed"]
    assert "$ docker run --gpus all …" in found.fix
    assert "gpu-not-passed" not in verdicts(on_gpu(machine("bare_metal"), no_driver))


def tried(facts: Machine, *, cuda: bool | Unknown, archs: tuple[str, ...]) -> dict[str, Verdict]:
    trial = ImportCheck(Fact("", "t"), Fact(cuda, "t"), Fact(archs, "t"), Fact("", "t"))
    made = on_gpu(facts, read_graphics(H200))
    return verdicts(dataclasses.replace(made, software=dataclasses.replace(made.software, trial=trial)))


def test_a_torch_that_was_tried_and_finds_no_gpu_is_told(machine: Callable[[str], Machine]) -> None:
    facts = machine("bare_metal")
    assert "finds no CUDA." in tried(facts, cuda=False, archs=("sm_90",))["cuda-unavailable"].what
    raised = tried(facts, cuda=Unknown("RuntimeError: no"), archs=("sm_90",))
    assert "RuntimeError: no" in raised["cuda-unavailable"].what
    assert "cuda-unavailable" not in tried(facts, cuda=True, archs=("sm_90",))


@pytest.mark.parametrize(
    ("archs", "name"),
    [
        (("sm_70", "sm_80"), "gpu-new"),
        (("sm_100", "sm_120"), "gpu-old"),
        (("sm_80", "sm_90a"), None),
        (("sm_80", "compute_80"), None),  # portable code is compiled on the spot
        (("strange",), None),
        ((), None),
    ],
)
def test_the_architectures_of_a_torch_that_was_tried_are_compared(
    machine: Callable[[str], Machine], archs: tuple[str, ...], name: str | None
) -> None:
    found = tried(machine("bare_metal"), cuda=True, archs=archs)
    assert [one for one in found if one.startswith(("gpu-old", "gpu-new"))] == ([name] if name else [])


def test_a_cpu_torchvision_beside_a_cuda_torch_is_broken(machine: Callable[[str], Machine]) -> None:
    pair = on_gpu(machine("bare_metal"), read_graphics(H200), torchvision=Fact("0.26.0+cpu", "v"))
    assert "CPU build beside a torch with CUDA" in verdicts(pair)["torchvision-broken"].what


def test_windows_is_sent_to_where_cuda_wheels_are_chosen(machine: Callable[[str], Machine]) -> None:
    cpu = {"torch": Fact("2.13.0+cpu", "v"), "torch_cuda": Fact("none", "v")}
    facts = on_gpu(machine("bare_metal"), read_graphics(H200), **cpu)
    assert verdicts(facts)["torch-without-cuda"].fix == ("$ pip uninstall torch", "$ pip install torch")
    windows = dataclasses.replace(facts, surroundings=dataclasses.replace(facts.surroundings, system="windows"))
    assert "pytorch.org, Get Started" in verdicts(windows)["torch-without-cuda"].fix[-1]


def test_a_divided_gpu_is_noted(machine: Callable[[str], Machine]) -> None:
    mig = read_graphics(answers(mig={"value": True}))
    assert verdicts(on_gpu(machine("bare_metal"), mig))["gpu-divided"].severity.value == "note"


def test_a_driver_in_a_container_is_restarted_by_the_host(machine: Callable[[str], Machine]) -> None:
    failed = read_graphics({"state": "driver failed", "why": "mismatch"})
    for name in ("docker_v2", "slurm"):
        assert not any("sudo" in line for line in verdicts(on_gpu(machine(name), failed))["driver-failed"].fix)
    assert "$ sudo reboot" in verdicts(on_gpu(machine("bare_metal"), failed))["driver-failed"].fix
