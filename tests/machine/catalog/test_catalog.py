"""Every row of the catalog is complete, plausible and says where its numbers are from."""

from __future__ import annotations

import re

import pytest

from oomph.machine import NOMINAL, cloud_machines, find_gpu, gpu_specs
from oomph.units import GIB

COMMON = """GTX 1080 Ti, RTX 2080 Ti, RTX 3090, RTX 4090, RTX 5090, P100, T4, L4, A2, A10, A10G, A16, A30, A40, L40S,
H100 PCIe, H100 SXM, H100 NVL, H200, B200, V100-16, V100-32, A100-40, A100-80, MI300X, M1 8GB"""


def test_gpu_rows_are_complete_and_plausible() -> None:
    for gpu in gpu_specs():
        assert gpu.vendor in {"nvidia", "amd", "apple"}, gpu.name
        assert gpu.architecture, gpu.name
        assert 2014 <= gpu.year <= 2026, gpu.name
        assert 2 * GIB <= gpu.nominal <= 600 * GIB, gpu.name
        assert 0.85 * gpu.nominal <= gpu.usable <= 1.01 * gpu.nominal, gpu.name
        assert gpu.bandwidth is None or 2e10 <= gpu.bandwidth <= 2e13, gpu.name


def test_memory_of_every_gpu_has_a_source_or_is_marked_as_nominal() -> None:
    for gpu in gpu_specs():
        assert gpu.source, gpu.name
        if gpu.usable_is_nominal:
            assert (gpu.usable_source, gpu.usable) == (NOMINAL, gpu.nominal), gpu.name
        else:
            # The address of the report, the number that it contains, or our own measurement.
            assert re.search(r"github\.com/|: [\d.]+ (MiB|GiB)|\(\d+ MiB\)|^measured: ", gpu.usable_source), gpu.name


def test_usable_memory_is_the_number_in_its_source() -> None:
    for gpu in gpu_specs():
        for number, unit in re.findall(r"(?:: |\()([\d.]+) (MiB|GiB)", gpu.usable_source):
            gib = float(number) / (1024 if unit == "MiB" else 1)
            assert gpu.usable / GIB == pytest.approx(gib, abs=0.03), gpu.name


def test_nvidia_rows_have_the_numbers_that_planning_needs() -> None:
    for gpu in (gpu for gpu in gpu_specs() if gpu.vendor == "nvidia"):
        assert gpu.compute_capability is not None, gpu.name
        assert re.fullmatch(r"\d+\.\d", gpu.compute_capability), gpu.name
        assert gpu.bandwidth is not None, gpu.name
        fp32, tf32, bf16 = gpu.rates.fp32, gpu.rates.tf32, gpu.rates.bf16
        assert fp32 is not None, gpu.name
        is_modern = int(gpu.compute_capability.split(".")[0]) >= 8
        assert (tf32 is not None) == (bf16 is not None) == is_modern, gpu.name
        if tf32 is not None and bf16 is not None:
            assert fp32 * 0.5 <= tf32 <= bf16, gpu.name


def test_cloud_rows_are_complete_and_plausible() -> None:
    for machine in cloud_machines():
        assert machine.provider in {"aws", "gcp", "azure"}, machine.name
        assert machine.source, machine.name
        assert find_gpu(machine.gpu).vendor, machine.name
        assert 1 <= machine.gpu_count <= 16, machine.name
        assert 0 < machine.gpu_fraction <= 1, machine.name
        assert machine.gpu_fraction == 1 or machine.gpu_count == 1, machine.name
        assert 4 * GIB <= machine.ram <= 6000 * GIB, machine.name
        assert 2 <= machine.vcpus <= 512, machine.name


def test_names_are_unique() -> None:
    for rows in (gpu_specs(), cloud_machines()):
        names = [row.name for row in rows]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", [name.strip() for name in COMMON.split(",")])
def test_common_gpus_are_in_the_catalog(name: str) -> None:
    assert find_gpu(name).usable > 0
