from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from oomph.errors import UsageError
from oomph.machine import Gpu, find_target, this_device, this_target
from oomph.machine._target import target_of_gpu
from oomph.machine.gpu import parse_driver
from oomph.units import GIB, MIB


def test_versions_are_those_that_oomph_was_measured_with_by_default() -> None:
    target = find_target("H200")
    assert (target.torch, target.cudnn, target.cudnn_number) == ("2.11", "9.19", 91900)


@pytest.mark.parametrize(
    ("torch", "cudnn"),
    [("1.13", "8.9"), ("2.3.1", "8.9"), ("2.6", "9.1"), ("2.7.0+cu126", "9.5"), ("2.10", "9.10"), ("2.12", "9.19")],
)
def test_torch_brings_its_cudnn(torch: str, cudnn: str) -> None:
    target = find_target("RTX 3060", torch=torch)
    assert (target.torch, target.cudnn) == (torch, cudnn)


def test_cudnn_may_differ_from_the_bundled_one() -> None:
    target = find_target("p4d.24xlarge", torch="2.6", cudnn="9.16.0.29")
    assert (target.torch, target.cudnn_number) == ("2.6", 91600)


@pytest.mark.parametrize("version", ["", "two", "2", "2.x", "-2.6", "2.6a"])
def test_what_is_no_version_is_rejected(version: str) -> None:
    with pytest.raises(UsageError, match="the version of torch is"):
        find_target("H200", torch=version)
    with pytest.raises(UsageError, match="the version of cuDNN is"):
        find_target("H200", cudnn=version)


def test_context_of_a_consumer_gpu_leaves_room_for_a_run_that_ran() -> None:
    # A public run on an RTX 4060 with 7,933 MiB used 7,560 MiB in addition to its context.
    assert find_target("RTX 4060").outside[1] <= (7933 - 7560) << 20 < find_target("H200").outside[1]


def recorded_gpu() -> Gpu:
    """An H200 with 4.4 GB in use, 3.8 GB of them by the process 426."""
    data = json.loads((Path(__file__).parent / "recorded/nvml_h200.json").read_text())
    return parse_driver(data).gpus[0]


def test_memory_of_other_processes_is_left_to_them() -> None:
    target, idle = target_of_gpu(recorded_gpu()), find_target("H200")
    assert target.memory == 146336251904
    assert target.in_use == idle.memory - target.memory > 3 * GIB


def test_memory_of_this_process_counts_as_free() -> None:
    gpu = recorded_gpu()
    (process,) = gpu.processes.known or ()
    own = dataclasses.replace(gpu.processes, value=(dataclasses.replace(process, is_self=True),))
    target = target_of_gpu(dataclasses.replace(gpu, processes=own))
    assert (target.memory, target.in_use) == (find_target("H200").memory, 0)


def test_the_drivers_own_memory_is_no_other_process() -> None:
    target = find_target("H200")
    assert target.with_free_memory(target.memory - 60 * MIB) == target
    assert target.with_free_memory(target.memory + MIB) == target
    assert target.with_free_memory(GIB).memory == GIB


def test_a_machine_without_a_gpu_is_its_cpu() -> None:
    assert this_target().name == ("cpu" if this_device() == "cpu" else find_target(this_device()).name)
