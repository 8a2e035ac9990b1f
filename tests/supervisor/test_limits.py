"""Limits of real processes: the RAM budget with and without a cgroup, a full container, a hang."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oomph.machine import memory_cgroups
from oomph.monitor import explain
from oomph.supervisor._cgroup import create_cgroup
from oomph.units import MIB

from .runs import OOMPH, is_alive, python, run

pytestmark = pytest.mark.medium

# Grows by 20 MiB every 50 ms, up to a size.
GROW = """
import sys, time
limit, seconds, blocks = int(sys.argv[1]), float(sys.argv[2]), []
while len(blocks) * 20 < limit:
    blocks.append(b"x" * (20 << 20))
    time.sleep(seconds)
print("done", flush=True)
"""
WITHOUT_CGROUP = """
import sys
import oomph.supervisor._run_command as command
command.create_cgroup = lambda limit: None
sys.argv = ["oomph", *sys.argv[1:]]
from oomph.cli import main
main()
"""


def grow(size: int, seconds: float = 0.05) -> list[str]:
    return [*python(GROW), str(size), str(seconds)]


def budget_groups() -> list[Path]:
    levels = memory_cgroups()
    return [] if not levels else list(Path(levels[0].path).parent.glob("**/oomph-run-*"))


def result(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "result.json").read_text())
    assert isinstance(document, dict)
    return document


def may_create_cgroups() -> bool:
    cgroup = create_cgroup(64 * MIB)
    if cgroup is not None:
        cgroup.remove()
    return cgroup is not None


needs_cgroups = pytest.mark.skipif(not may_create_cgroups(), reason="no cgroup may be created here")


def test_a_command_above_its_budget_is_stopped_and_explained(tmp_path: Path) -> None:
    ended = run(["--budget", "ram=200MiB", "--json", "result.json", "--", *grow(2000)], tmp_path)
    assert ended.returncode == 143
    assert b"exceeded its RAM budget" in ended.stderr
    assert b"its budget is 200 MiB" in ended.stderr
    document = result(tmp_path)
    assert document["attempts"][0]["failure"] == "host-budget"
    assert document["attempts"][0]["stopped_by_oomph"]
    assert explain(tmp_path / document["record"]).findings[0].kind.value == "host-budget"
    assert budget_groups() == []


def test_a_budget_without_a_cgroup_reads_rss(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WITHOUT_CGROUP, "run", "--budget", "ram=200MiB", "--json", "result.json", "--"]
    ended = subprocess.run([*words, *grow(2000)], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 143
    used = result(tmp_path)["explanation"]["findings"][0]["numbers"]["used"]
    assert 200 * MIB < used < 300 * MIB


@needs_cgroups
def test_the_kernel_enforces_a_budget_that_is_exceeded_at_once(tmp_path: Path) -> None:
    command = python("x = b'y' * (2 << 30); print(len(x))")
    ended = run(["--budget", "ram=100MiB", "--json", "result.json", "--", *command], tmp_path)
    assert ended.returncode in {137, 143}
    assert result(tmp_path)["attempts"][0]["failure"] == "host-budget"
    assert ended.stdout == b""
    assert budget_groups() == []


def test_a_command_within_its_budget_is_left_alone(tmp_path: Path) -> None:
    ended = run(["--budget", "ram=500MiB", "--", *grow(100, 0.01)], tmp_path)
    assert (ended.returncode, ended.stdout) == (0, b"done\n")
    assert budget_groups() == []


def test_processes_of_the_whole_tree_count_and_end(tmp_path: Path) -> None:
    source = "import subprocess, sys; children = [subprocess.Popen(sys.argv[1:]) for _ in range(3)]\n"
    source += "print(*(child.pid for child in children), flush=True)\nfor child in children: child.wait()"
    ended = run(["--budget", "ram=300MiB", "--", *python(source), *grow(160)], tmp_path)
    assert ended.returncode == 143
    assert not any(is_alive(int(pid)) for pid in ended.stdout.split()[:3])


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    source = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + GROW + "\ntime.sleep(60)"
    start = time.monotonic()
    ended = run(["--budget", "ram=150MiB", "--", *python(source), "2000", "0.05"], tmp_path)
    assert ended.returncode == 137
    assert b"exceeded its RAM budget" in ended.stderr
    assert time.monotonic() - start < 25


def test_a_command_that_saves_on_sigterm_gets_the_time_for_it(tmp_path: Path) -> None:
    source = (
        "import signal, sys, time\n"
        "def save(*_):\n    time.sleep(1); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n" + GROW
    )
    ended = run(["--budget", "ram=150MiB", "--", *python(source), "200", "0.05"], tmp_path)
    assert b"saved" in ended.stdout
    assert ended.returncode == 143, "a command that was stopped has not succeeded"


@contextlib.contextmanager
def container(limit: int) -> Iterator[Path]:
    """A cgroup around `oomph run` itself, as a container has it."""
    cgroup = create_cgroup(limit)
    assert cgroup is not None
    try:
        yield cgroup.folder
    finally:
        cgroup.remove()


def run_inside(group: Path, arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[bytes]:
    shell = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    return subprocess.run(
        ["sh", "-c", shell, "sh", *OOMPH, *arguments], cwd=cwd, capture_output=True, timeout=120, check=False
    )


@needs_cgroups
def test_a_command_is_stopped_before_its_container_is_full(tmp_path: Path) -> None:
    with container(500 * MIB) as group:
        ended = run_inside(group, ["--json", "result.json", "--", *grow(2000)], tmp_path)
    assert ended.returncode == 143
    assert b"RAM was about to run out" in ended.stderr
    assert result(tmp_path)["attempts"][0]["failure"] == "host-full"


@needs_cgroups
def test_without_the_guard_the_kernel_kills_and_that_is_explained(tmp_path: Path) -> None:
    with container(300 * MIB) as group:
        ended = run_inside(group, ["--no-guard-ram", "--json", "result.json", "--", *grow(2000)], tmp_path)
    assert ended.returncode == 137
    assert result(tmp_path)["attempts"][0]["failure"] == "oom-kill"


def test_a_hang_is_explained_and_stopped(tmp_path: Path) -> None:
    source = "import threading; print('waiting', flush=True); lock = threading.Lock(); lock.acquire(); lock.acquire()"
    ended = run(["--timeout-idle", "2s", "--json", "result.json", "--", *python(source)], tmp_path)
    assert ended.returncode == 143
    assert b"hung and was stopped" in ended.stderr
    assert result(tmp_path)["attempts"][0]["failure"] == "hang"


@pytest.mark.parametrize(
    "work", ["sum(range(10**6))", "print('still here', flush=True); time.sleep(0.5)"], ids=["CPU", "output"]
)
def test_work_and_output_are_no_hang(work: str, tmp_path: Path) -> None:
    source = f"import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: {work}"
    assert run(["--timeout-idle", "0.025", "--", *python(source)], tmp_path).returncode == 0


@needs_cgroups
def test_groups_of_killed_supervisors_are_removed_later(tmp_path: Path) -> None:
    command = [*OOMPH, "--budget", "ram=300MiB", "--", *python("import time; print(1, flush=True); time.sleep(60)")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (group,) = budget_groups()
        pids = (group / "cgroup.procs").read_text().split()
        process.kill()
    for pid in pids:
        os.kill(int(pid), 9)
    while any(is_alive(int(pid)) for pid in pids):
        time.sleep(0.02)
    assert run(["--budget", "ram=300MiB", "--", "true"], tmp_path).returncode == 0
    assert budget_groups() == []
