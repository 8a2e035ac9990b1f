from __future__ import annotations

from collections.abc import Callable

import pytest

from oomph.machine import EnvironmentKind
from oomph.machine._source import Source
from oomph.machine._surroundings import read_surroundings, surroundings_elsewhere
from oomph.units import GIB

Recorded = Callable[[str], Source]


@pytest.mark.parametrize(
    ("name", "places"),
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
def test_where_a_process_runs_is_recognised(recorded: Recorded, name: str, places: list[EnvironmentKind]) -> None:
    assert [found.place for found in read_surroundings(recorded(name)).places] == places


@pytest.mark.parametrize("variable", ["COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE", "JPY_PARENT_PID"])
def test_notebooks_are_recognised_by_their_environment(recorded: Recorded, variable: str) -> None:
    source = Source.recorded(recorded("bare_metal").root, {variable: "1"})
    (found,) = read_surroundings(source).places
    assert (found.place, found.source) == (EnvironmentKind.NOTEBOOK, f"environment {variable}")
    assert surroundings_elsewhere("windows", {variable: "1"}).inside(EnvironmentKind.NOTEBOOK)


@pytest.mark.parametrize(
    ("environ", "memory"),
    [
        ({"SLURM_MEM_PER_NODE": "32768"}, 32 * GIB),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "8"}, 16 * GIB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),  # all of the node
        ({}, None),
    ],
)
def test_what_a_slurm_job_asked_for(recorded: Recorded, environ: dict[str, str], memory: int | None) -> None:
    source = Source.recorded(recorded("slurm").root, environ)
    assert read_surroundings(source).slurm_memory.known == memory
