from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomph.machine import NO_LIMIT, Unknown
from oomph.machine.host import Source, read_limits
from oomph.units import GIB


def doctor_under(*prlimit: str) -> dict[str, Any]:
    """Run `oomph doctor` in a process with a resource limit."""
    command = ["prlimit", *prlimit, "--", sys.executable, "-m", "oomph", "doctor", "--json"]
    data = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert isinstance(data, dict)
    return data


@pytest.mark.medium
def test_address_space_limit_of_a_process_is_reported() -> None:
    diagnosis = doctor_under(f"--as={4 * GIB}")
    assert diagnosis["machine"]["limits"]["address_space"]["value"] == 4 * GIB
    (verdict,) = [verdict for verdict in diagnosis["verdicts"] if verdict["name"] == "address-space-limit"]
    assert "4 GiB" in verdict["summary"]
    assert "$ ulimit -v unlimited" in verdict["fix"]
    bound = diagnosis["machine"]["budget"]["bounds"][0]
    assert bound["name"] == "address-space limit"
    assert 0 < bound["available"] < 4 * GIB


@pytest.mark.medium
def test_data_limit_of_a_process_is_reported() -> None:
    diagnosis = doctor_under(f"--data={2 * GIB}")
    assert "data-limit" in [verdict["name"] for verdict in diagnosis["verdicts"]]
    assert diagnosis["machine"]["budget"]["bounds"][0]["name"] == "data limit"


def test_unlimited_is_no_limit_rather_than_unknown(recorded: Callable[[str], Source]) -> None:
    limits = read_limits(recorded("bare_metal"))
    assert limits.address_space.value is NO_LIMIT
    assert limits.data.value is NO_LIMIT
    assert limits.open_files.value == 1024


def test_limits_are_unknown_without_proc(tmp_path: Path) -> None:
    limits = read_limits(Source.recorded(tmp_path))
    assert isinstance(limits.address_space.value, Unknown)
    assert isinstance(limits.address_space_used.value, Unknown)


def test_malformed_limit_is_unknown(recorded: Callable[[str], Source]) -> None:
    source = recorded("bare_metal")
    file = source.path("/proc/self/limits")
    file.write_text(file.read_text().replace("unlimited", "plenty"))
    assert isinstance(read_limits(source).address_space.value, Unknown)
