from __future__ import annotations

from collections.abc import Callable

import pytest

from oomph.machine import EnvironmentKind
from oomph.machine.host import Source, non_linux_environment, read_environment
from oomph.units import GIB

Recorded = Callable[[str], Source]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("bare_metal", []),
        ("docker_v2", [EnvironmentKind.CONTAINER]),
        ("nested", [EnvironmentKind.CONTAINER]),
        ("cgroup_v1", [EnvironmentKind.CONTAINER]),
        ("slurm", [EnvironmentKind.SLURM]),
        ("wsl", [EnvironmentKind.WSL]),
        ("no_limit", []),
    ],
)
def test_environment_is_detected(recorded: Recorded, name: str, kinds: list[EnvironmentKind]) -> None:
    assert [detected.kind for detected in read_environment(recorded(name)).detected] == kinds


@pytest.mark.parametrize("variable", ["COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE", "JPY_PARENT_PID"])
def test_notebooks_are_detected_by_environment_variables(recorded: Recorded, variable: str) -> None:
    source = Source.recorded(recorded("bare_metal").root, {variable: "1"})
    (detected,) = read_environment(source).detected
    assert (detected.kind, detected.source) == (EnvironmentKind.NOTEBOOK, f"environment {variable}")
    assert non_linux_environment("windows", {variable: "1"}).inside(EnvironmentKind.NOTEBOOK)


@pytest.mark.parametrize(
    ("environ", "memory"),
    [
        ({"SLURM_MEM_PER_NODE": "32768"}, 32 * GIB),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "8"}, 16 * GIB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),  # the whole node
        ({}, None),
    ],
)
def test_slurm_memory_request_is_read(recorded: Recorded, environ: dict[str, str], memory: int | None) -> None:
    source = Source.recorded(recorded("slurm").root, environ)
    assert read_environment(source).slurm_memory.known == memory
