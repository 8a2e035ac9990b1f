from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from oomph.machine import Fact, Machine, Unknown, Verdict, diagnose_machine
from oomph.machine._software import ImportCheck
from oomph.machine.gpu import parse_driver

from ..recordings import H200, h200, on_gpu, software

ReadMachine = Callable[[str], Machine]


def verdicts(machine: Machine) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in diagnose_machine(machine)}


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"torch": Fact("2.13.0+cpu", "v"), "torch_cuda": Fact("none", "v")}, "torch-without-cuda", "CPU build"),
        ({"torch_cuda": Fact("14.1", "v")}, "driver-old", "supports CUDA 13.0 at most"),
        ({"torch": Fact(Unknown("not installed"), "v")}, "torch-missing", "not installed"),
        ({"torch": Fact(Unknown("Permission denied"), "v")}, "torch-unreadable", "can't be read: Permission denied"),
        ({"torchvision_requires": Fact("2.9.0", "v")}, "torchvision-broken", "built for torch 2.9.0"),
        ({"torchvision": Fact("0.26.0+cpu", "v")}, "torchvision-broken", "CPU build and torch is a CUDA build"),
    ],
)
def test_unfit_torch_is_reported(machine: ReadMachine, fields: dict[str, Fact[str]], name: str, text: str) -> None:
    facts = on_gpu(machine("bare_metal"), parse_driver(H200), **fields)
    assert text in verdicts(facts)[name].summary


def test_gpu_too_old_for_the_build_is_reported(machine: ReadMachine) -> None:
    pascal = parse_driver(h200(capability={"value": [6, 1]}))
    assert "6.1" in verdicts(on_gpu(machine("bare_metal"), pascal))["gpu-old"].summary


def test_gpu_too_new_for_the_build_is_reported(machine: ReadMachine) -> None:
    blackwell = parse_driver(h200(capability={"value": [12, 0]}))
    facts = machine("bare_metal")
    verdict = verdicts(on_gpu(facts, blackwell, torch_cuda=Fact("12.6", "v")))["gpu-new"]
    assert "12.8 or newer" in verdict.fix[0]
    assert "gpu-new" not in verdicts(on_gpu(facts, blackwell, torch_cuda=Fact("12.8", "v")))


def test_malformed_versions_are_not_compared(machine: ReadMachine) -> None:
    driver = dataclasses.replace(parse_driver(H200), cuda=Fact("new", "x"))
    odd = dataclasses.replace(driver.gpus[0], compute_capability=Fact("ninety", "x"))
    facts = on_gpu(machine("bare_metal"), dataclasses.replace(driver, gpus=(odd,)), torch_cuda=Fact("abc", "v"))
    assert set(verdicts(facts)) == {"gpu-memory-used"}


def test_cuda_torchvision_with_a_cpu_torch_is_reported(machine: ReadMachine) -> None:
    pair = software(torchvision=Fact("0.28.0+cu130", "v"))
    facts = dataclasses.replace(machine("bare_metal"), software=pair)
    assert "torchvision::nms" in verdicts(facts)["torchvision-broken"].summary


def test_container_without_its_gpu_is_reported(machine: ReadMachine) -> None:
    no_driver = parse_driver({"state": "no driver", "reason": "not installed"})
    verdict = verdicts(on_gpu(machine("docker_v2"), no_driver))["gpu-not-in-container"]
    assert "$ docker run --gpus all …" in verdict.fix
    assert "gpu-not-in-container" not in verdicts(on_gpu(machine("bare_metal"), no_driver))


def after_import(facts: Machine, *, cuda: bool | Unknown, archs: tuple[str, ...]) -> dict[str, Verdict]:
    check = ImportCheck(Fact("", "t"), Fact(cuda, "t"), Fact(archs, "t"), Fact("", "t"))
    gpu_machine = on_gpu(facts, parse_driver(H200))
    with_check = dataclasses.replace(gpu_machine.software, import_check=check)
    return verdicts(dataclasses.replace(gpu_machine, software=with_check))


def test_imported_torch_without_cuda_is_reported(machine: ReadMachine) -> None:
    facts = machine("bare_metal")
    assert "finds no CUDA." in after_import(facts, cuda=False, archs=("sm_90",))["cuda-unavailable"].summary
    error = after_import(facts, cuda=Unknown("RuntimeError: no"), archs=("sm_90",))
    assert "RuntimeError: no" in error["cuda-unavailable"].summary
    assert "cuda-unavailable" not in after_import(facts, cuda=True, archs=("sm_90",))


@pytest.mark.parametrize(
    ("archs", "expected"),
    [
        (("sm_70", "sm_80"), "gpu-new"),
        (("sm_100", "sm_120"), "gpu-old"),
        (("sm_80", "sm_90a"), None),
        (("sm_80", "compute_80"), None),  # PTX is compiled at load time
        (("strange",), None),
        ((), None),
    ],
)
def test_architectures_of_an_imported_torch_are_compared(
    machine: ReadMachine, archs: tuple[str, ...], expected: str | None
) -> None:
    names = after_import(machine("bare_metal"), cuda=True, archs=archs)
    assert [name for name in names if name.startswith(("gpu-old", "gpu-new"))] == ([expected] if expected else [])


def test_windows_gets_a_link_to_cuda_wheels(machine: ReadMachine) -> None:
    cpu = {"torch": Fact("2.13.0+cpu", "v"), "torch_cuda": Fact("none", "v")}
    facts = on_gpu(machine("bare_metal"), parse_driver(H200), **cpu)
    assert verdicts(facts)["torch-without-cuda"].fix == ("$ pip uninstall torch", "$ pip install torch")
    windows = dataclasses.replace(facts, environment=dataclasses.replace(facts.environment, system="windows"))
    assert "pytorch.org, Get Started" in verdicts(windows)["torch-without-cuda"].fix[-1]
