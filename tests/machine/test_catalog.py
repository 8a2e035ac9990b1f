"""The schema of the data files: what every row must have, and what can't be true."""

from __future__ import annotations

import re

import pytest

from oomph.machine import CloudMachine, GpuSpec, clouds, find_gpu, gpus
from oomph.units import GIB

WANTED = """GTX 1080 Ti, RTX 2080 Ti, RTX 3090, RTX 4090, RTX 5090, P100, T4, L4, A2, A10, A10G, A16, A30, A40, L40S,
H100 PCIe, H100 SXM, H100 NVL, H200, B200, V100-16, V100-32, A100-40, A100-80, MI300X, M1 8GB"""


@pytest.mark.parametrize("gpu", gpus(), ids=lambda gpu: gpu.name)
def test_a_gpu_row_is_whole_and_plausible(gpu: GpuSpec) -> None:
    assert gpu.vendor in {"nvidia", "amd", "apple"}
    assert gpu.architecture
    assert gpu.source
    assert 2014 <= gpu.year <= 2026
    assert 2 * GIB <= gpu.nominal <= 600 * GIB
    assert 0.85 * gpu.nominal <= gpu.usable <= 1.01 * gpu.nominal
    assert bool(gpu.usable_source) or gpu.usable == gpu.nominal
    assert gpu.bandwidth is None or 2e10 <= gpu.bandwidth <= 2e13


@pytest.mark.parametrize("gpu", [gpu for gpu in gpus() if gpu.vendor == "nvidia"], ids=lambda gpu: gpu.name)
def test_an_nvidia_row_has_what_planning_needs(gpu: GpuSpec) -> None:
    assert gpu.compute_capability is not None
    assert re.fullmatch(r"\d+\.\d", gpu.compute_capability)
    modern = int(gpu.compute_capability.split(".")[0]) >= 8
    assert gpu.bandwidth is not None
    assert gpu.rates.fp32 is not None
    assert (gpu.rates.tf32 is not None) == (gpu.rates.bf16 is not None) == modern
    if gpu.rates.tf32 is not None and gpu.rates.bf16 is not None:
        assert gpu.rates.fp32 * 0.5 <= gpu.rates.tf32 <= gpu.rates.bf16


@pytest.mark.parametrize("machine", clouds(), ids=lambda machine: machine.name)
def test_a_cloud_row_is_whole_and_plausible(machine: CloudMachine) -> None:
    assert machine.provider in {"aws", "gcp", "azure"}
    assert machine.source
    assert find_gpu(machine.gpu).vendor
    assert 1 <= machine.gpu_count <= 16
    assert 0 < machine.gpu_share <= 1
    assert machine.gpu_share == 1 or machine.gpu_count == 1
    assert 4 * GIB <= machine.ram <= 6000 * GIB
    assert 2 <= machine.vcpus <= 512


def test_names_are_unique() -> None:
    for rows in (gpus(), clouds()):
        names = [row.name for row in rows]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", [name.strip() for name in WANTED.split(",")])
def test_what_people_train_on_is_there(name: str) -> None:
    assert find_gpu(name).usable > 0
