from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oomph.machine._fact import NO_LIMIT, Unknown
from oomph.machine._limits import read_limits
from oomph.machine._source import Source
from oomph.units import GIB


def doctor_under(*prlimit: str) -> dict[str, Any]:
    """Run the real doctor in a real process under a real limit."""
    command = ["prlimit", *prlimit, "--", sys.executable, "-m", "oomph", "doctor", "--json"]
    data = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert isinstance(data, dict)
    return data


def test_a_real_address_space_limit_is_reported() -> None:
    found = doctor_under(f"--as={4 * GIB}")
    assert found["machine"]["limits"]["address_space"]["value"] == 4 * GIB
    (verdict,) = [one for one in found["verdicts"] if one["name"] == "address-limit"]
    assert "4 GiB" in verdict["what"]
    assert "$ ulimit -v unlimited" in verdict["fix"]
    bound = found["machine"]["budget"]["bounds"][0]
    assert bound["name"] == "address-space limit"
    assert 0 < bound["room"] < 4 * GIB


def test_a_real_data_limit_is_reported() -> None:
    found = doctor_under(f"--data={2 * GIB}")
    assert "data-limit" in [one["name"] for one in found["verdicts"]]
    assert found["machine"]["budget"]["bounds"][0]["name"] == "data limit"


def test_without_limits_there_is_no_limit_and_not_unknown(recorded: Callable[[str], Source]) -> None:
    limits = read_limits(recorded("bare_metal"))
    assert limits.address_space.value is NO_LIMIT
    assert limits.data.value is NO_LIMIT
    assert limits.open_files.value == 1024


def test_a_system_without_proc_doesn_t_know(tmp_path: Path) -> None:
    limits = read_limits(Source.recorded(tmp_path))
    assert isinstance(limits.address_space.value, Unknown)
    assert isinstance(limits.address_space_used.value, Unknown)


def test_an_odd_limit_is_unknown(recorded: Callable[[str], Source]) -> None:
    source = recorded("bare_metal")
    file = source.path("/proc/self/limits")
    file.write_text(file.read_text().replace("unlimited", "plenty"))
    assert isinstance(read_limits(source).address_space.value, Unknown)
