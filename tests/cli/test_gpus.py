from __future__ import annotations

import json

import pytest

from oomph.cli import run


def test_all_gpus_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus"]) == 0
    output = capsys.readouterr().out
    assert "GeForce RTX 3060 12GB" in output
    assert "H200" in output


def test_minimum_memory_filters_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    run(["gpus", "--min", "100GiB", "--json"])
    names = [gpu["name"] for gpu in json.loads(capsys.readouterr().out)["gpus"]]
    assert "H200" in names
    assert "GeForce RTX 3060 12GB" not in names


def test_machines_are_listed_by_cloud(capsys: pytest.CaptureFixture[str]) -> None:
    run(["gpus", "--cloud", "aws", "--min", "70GiB", "--json"])
    machines = json.loads(capsys.readouterr().out)["machines"]
    assert {machine["provider"] for machine in machines} == {"aws"}
    assert "p4de.24xlarge" in [machine["name"] for machine in machines]
    assert "g4dn.xlarge" not in [machine["name"] for machine in machines]


def test_gpu_is_shown_with_its_cloud_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "a100-40"]) == 0
    output = capsys.readouterr().out
    assert "A100 SXM4 40GB" in output
    assert "p4d.24xlarge (8 × A100 SXM4 40GB)" in output


def test_cloud_machine_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "g5.xlarge"]) == 0
    assert "1 × A10G" in capsys.readouterr().out


@pytest.mark.medium
def test_nominal_memory_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    run(["gpus"])
    rows = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "~ 8 GiB" in rows["M1 8GB"]
    assert "~" not in rows["H200"]
    run(["gpus", "--json"])
    entries = {gpu["name"]: gpu for gpu in json.loads(capsys.readouterr().out)["gpus"]}
    assert (entries["M1 8GB"]["usable_is_nominal"], entries["M1 8GB"]["usable_source"]) == (True, "~")
    assert entries["H200"]["usable_is_nominal"] is False
    run(["gpus", "M1 8GB"])
    assert "~ 8 GiB, nominal" in capsys.readouterr().out
