from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oomph.errors import InvalidFile, MissingFile
from oomph.machine import Machine, diagnose_machine, load_machine, machine_document, read_machine

NAMES = ["bare_metal", "docker_v2", "nested", "cgroup_v1", "slurm", "wsl", "no_limit", "swapping"]


@pytest.mark.parametrize("name", NAMES)
def test_machine_survives_a_round_trip_through_json(
    machine: Callable[[str], Machine], name: str, tmp_path: Path
) -> None:
    facts = machine(name)
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(machine_document(facts)))
    assert load_machine(file) == facts


def test_no_fact_is_minus_one(machine: Callable[[str], Machine]) -> None:
    for name in NAMES:
        text = json.dumps(machine_document(machine(name)))
        assert "-1" not in text.replace("user-1000", "").replace("pod-1", "")


def test_this_machine_is_read(tmp_path: Path) -> None:
    facts = read_machine(tmp_path)
    assert facts.budget.tightest is not None
    assert facts.disk.path == str(tmp_path)
    assert (facts.cores.usable.known or 0) >= 1


def test_missing_folder_is_rejected() -> None:
    with pytest.raises(MissingFile, match="no folder 'nowhere'"):
        read_machine(Path("nowhere"))


def test_long_folder_name_is_cut_in_the_message() -> None:
    with pytest.raises(MissingFile) as caught:
        read_machine(Path("x" * 5000))
    assert len(str(caught.value)) < 200


def test_folder_in_a_locked_one_is_rejected(locked: Path, without_root: None) -> None:
    del without_root
    with pytest.raises(MissingFile, match=r"can't be opened \(Permission denied\)|there is no folder"):
        read_machine(locked / "inner")


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "locked"
    (folder / "inner").mkdir(parents=True)
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


def test_readonly_folder_gets_a_verdict(without_root: None) -> None:
    del without_root
    facts = read_machine(Path("/usr"))
    assert facts.disk.writable.known is False
    assert "folder-readonly" in [verdict.name for verdict in diagnose_machine(facts)]


def test_file_without_a_machine_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    with pytest.raises(InvalidFile, match=r"not (a|an oomph) machine"):
        load_machine(file)


def test_negative_size_is_rejected_with_its_path(machine: Callable[[str], Machine], tmp_path: Path) -> None:
    data: Any = machine_document(machine("bare_metal"))
    data["memory"]["ram_total"]["value"] = -5
    file = tmp_path / "x.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InvalidFile, match=r"memory\.ram_total\.value is negative"):
        load_machine(file)
