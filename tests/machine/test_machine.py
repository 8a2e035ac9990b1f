from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oomph.errors import InvalidFile, MissingFile
from oomph.machine import Machine, judge, load_machine, machine_document, read_machine

NAMES = ["bare_metal", "docker_v2", "nested", "cgroup_v1", "slurm", "wsl", "no_limit", "swapping"]


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_comes_back_from_its_file_as_it_was(
    machine: Callable[[str], Machine], name: str, tmp_path: Path
) -> None:
    facts = machine(name)
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(machine_document(facts)))
    assert load_machine(file) == facts


def test_no_fact_is_a_sentinel(machine: Callable[[str], Machine]) -> None:
    for name in NAMES:
        text = json.dumps(machine_document(machine(name)))
        assert "-1" not in text.replace("user-1000", "").replace("pod-1", "")


def test_this_machine_is_read(tmp_path: Path) -> None:
    facts = read_machine(tmp_path)
    assert facts.budget.tightest is not None
    assert facts.disk.path == str(tmp_path)
    assert (facts.cores.usable.known or 0) >= 1


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(MissingFile, match="no folder 'nowhere'"):
        read_machine(Path("nowhere"))


def test_a_folder_behind_a_locked_one_is_refused(locked: Path, ordinary_user: None) -> None:
    del ordinary_user
    with pytest.raises(MissingFile, match=r"can't be opened \(Permission denied\)|there is no folder"):
        read_machine(locked / "inner")


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "locked"
    (folder / "inner").mkdir(parents=True)
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


def test_a_folder_that_nobody_may_write_to_fails(ordinary_user: None) -> None:
    del ordinary_user
    facts = read_machine(Path("/usr"))
    assert facts.disk.writable.known is False
    assert "folder-readonly" in [verdict.name for verdict in judge(facts)]


def test_a_file_that_holds_no_machine_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    with pytest.raises(InvalidFile, match="not a machine"):
        load_machine(file)


def test_sizes_below_zero_are_refused_with_their_place(machine: Callable[[str], Machine], tmp_path: Path) -> None:
    data: Any = machine_document(machine("bare_metal"))
    data["memory"]["ram_total"]["value"] = -5
    file = tmp_path / "x.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InvalidFile, match=r"memory\.ram_total\.value is below zero"):
        load_machine(file)
