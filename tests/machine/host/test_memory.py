from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from oomph.machine import Unknown
from oomph.machine.host import Source, read_memory
from oomph.units import GIB, KIB

Recorded = Callable[[str], Source]


def test_swap_has_a_size_and_a_rate(recorded: Recorded) -> None:
    memory = read_memory(recorded("swapping"))
    assert memory.swap_total.known == 16 * GIB
    assert memory.swap_used.known == int(8.5 * GIB)
    assert memory.swap_in_rate.known == pytest.approx(2560 * 4 * KIB / 0.2)
    assert memory.swap_out_rate.known == pytest.approx(5120 * 4 * KIB / 0.2)
    assert memory.major_faults_rate.known == pytest.approx(1024 / 0.2)
    assert memory.swap_in_rate.source == "/proc/vmstat pswpin, twice"


def test_no_swap_is_zero_rather_than_unknown(recorded: Recorded) -> None:
    memory = read_memory(recorded("no_limit"))
    assert (memory.swap_total.value, memory.swap_used.value) == (0, 0)
    assert memory.swap_out_rate.value == 0


def test_commit_limit_is_enforced_only_in_mode_2(recorded: Recorded) -> None:
    source = recorded("bare_metal")
    memory = read_memory(source)
    assert (memory.overcommit.known, memory.commit_enforced.known) == (0, False)
    source.path("/proc/sys/vm/overcommit_memory").write_text("2\n")
    assert read_memory(source).commit_enforced.known is True


def test_missing_files_are_unknown_with_a_reason(tmp_path: Path) -> None:
    memory = read_memory(Source.recorded(tmp_path))
    assert memory.ram_total.value == Unknown("there is no such file")
    assert isinstance(memory.swap_used.value, Unknown)
    assert isinstance(memory.swap_in_rate.value, Unknown)
    assert isinstance(memory.commit_enforced.value, Unknown)


def test_empty_overcommit_mode_is_unknown(recorded: Recorded) -> None:
    source = recorded("bare_metal")
    source.path("/proc/sys/vm/overcommit_memory").write_text("")
    assert read_memory(source).overcommit.value == Unknown("unexpected text ''")


def test_free_memory_replaces_a_missing_memavailable(recorded: Recorded) -> None:
    source = recorded("bare_metal")
    meminfo = source.path("/proc/meminfo")
    meminfo.write_text(meminfo.read_text().replace("MemAvailable", "MemElse"))
    assert read_memory(source).ram_available.source == "/proc/meminfo MemFree"


def test_this_machine_agrees_with_psutil() -> None:
    memory = read_memory(Source())
    assert memory.ram_total.known == psutil.virtual_memory().total
    assert memory.ram_available.known == pytest.approx(psutil.virtual_memory().available, rel=0.1)
    assert memory.swap_total.known == psutil.swap_memory().total
