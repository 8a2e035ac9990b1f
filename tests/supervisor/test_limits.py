"""Limits of real processes: the RAM budget with and without a cgroup, a full container, a hang."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oomph.machine import memory_cgroups
from oomph.monitor import explain
from oomph.supervisor._cgroup import CommandCgroup, create_cgroup
from oomph.units import MIB

from .runs import OOMPH, Ended, first_line, is_alive, python, run, run_program, started, wait_for

pytestmark = pytest.mark.medium

# Grows fast to 50 MiB below a size, then slowly, so that even a busy machine sees it on its way, and stays there.
GROW = """
import sys, time
size, blocks = int(sys.argv[1]), []
while len(blocks) < size:
    blocks.append(b"x" * (1 << 20))
    time.sleep(0.0005 if len(blocks) < size - 50 else 0.05)
time.sleep(300)
"""
WITHOUT_CGROUP = """
import sys
import oomph.supervisor._run_command as command
command.create_cgroup = lambda limit: None
sys.argv = ["oomph", *sys.argv[1:]]
from oomph.cli import main
main()
"""


def grow(size: int) -> list[str]:
    return [*python(GROW), str(size)]


def budget_groups(supervisor: int) -> list[Path]:
    """Return the cgroup that a supervisor has created, if it is still there; other tests and users have their own."""
    levels = memory_cgroups()
    return [] if not levels else list(Path(levels[0].path).parent.glob(f"**/oomph-run-{supervisor}"))


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
    ended = run(["--budget", "ram=200MiB", "--json", "result.json", "--", *grow(240)], tmp_path)
    assert ended.returncode == 143
    assert b"exceeded its RAM budget" in ended.stderr
    assert b"its budget is 200 MiB" in ended.stderr
    document = result(tmp_path)
    assert document["attempts"][0]["failure"] == "host-budget"
    assert document["attempts"][0]["stopped_by_oomph"]
    assert explain(tmp_path / document["record"]).findings[0].kind.value == "host-budget"
    assert budget_groups(ended.pid) == []


def test_a_budget_without_a_cgroup_reads_rss(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WITHOUT_CGROUP, "run", "--budget", "ram=200MiB", "--json", "result.json", "--"]
    assert run_program([*words, *grow(240)], tmp_path).returncode in {143, 137}  # 137: 10 % above the budget
    used = result(tmp_path)["explanation"]["findings"][0]["numbers"]["used"]
    assert 200 * MIB < used < 270 * MIB


@needs_cgroups
def test_the_kernel_enforces_a_budget_that_is_exceeded_at_once(tmp_path: Path) -> None:
    command = python("x = b'y' * (2 << 30); print(len(x))")
    ended = run(["--budget", "ram=100MiB", "--json", "result.json", "--", *command], tmp_path)
    assert ended.returncode in {137, 143}
    assert result(tmp_path)["attempts"][0]["failure"] == "host-budget"
    assert ended.stdout == b""
    assert budget_groups(ended.pid) == []


def test_a_command_within_its_budget_is_left_alone(tmp_path: Path) -> None:
    ended = run(["--budget", "ram=500MiB", "--", *python("x = b'y' * (100 << 20); print('done')")], tmp_path)
    assert (ended.returncode, ended.stdout) == (0, b"done\n")
    assert budget_groups(ended.pid) == []


def test_processes_of_the_whole_tree_count_and_end(tmp_path: Path) -> None:
    source = "import subprocess, sys; children = [subprocess.Popen(sys.argv[1:]) for _ in range(3)]\n"
    source += "print(*(child.pid for child in children), flush=True)\nfor child in children: child.wait()"
    ended = run(["--budget", "ram=300MiB", "--", *python(source), *grow(105)], tmp_path)
    assert ended.returncode in {143, 137}
    assert not any(is_alive(int(pid)) for pid in ended.stdout.split()[:3])


@pytest.mark.large
def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    source = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + GROW
    ended = run(["--budget", "ram=150MiB", "--", *python(source), "190"], tmp_path)
    assert ended.returncode == 137
    assert b"exceeded its RAM budget" in ended.stderr


@pytest.mark.large
@pytest.mark.parametrize("code", [0, 1])
def test_a_command_that_saves_on_sigterm_gets_the_time_for_it(code: int, tmp_path: Path) -> None:
    source = (
        "import signal, sys, time\n"
        f"def save(*_):\n    time.sleep(1); print('saved', flush=True); sys.exit({code})\n"
        "signal.signal(signal.SIGTERM, save)\n" + GROW
    )
    ended = run(["--budget", "ram=300MiB", "--", *python(source), "305"], tmp_path)
    assert b"saved" in ended.stdout
    assert ended.returncode == 143, "a command that was stopped has not succeeded, whatever it returns"


@contextlib.contextmanager
def container(size: int) -> Iterator[CommandCgroup]:
    """A cgroup around `oomph run` itself, as a container has it."""
    cgroup = create_cgroup(size)
    assert cgroup is not None
    try:
        yield cgroup
    finally:
        cgroup.remove()


def run_inside(group: CommandCgroup, arguments: list[str], cwd: Path) -> Ended:
    shell = f'echo $$ > {group.folder}/cgroup.procs && exec "$@"'
    return run_program(["sh", "-c", shell, "sh", *OOMPH, *arguments], cwd)


@needs_cgroups
def test_a_command_is_stopped_before_its_container_is_full(tmp_path: Path) -> None:
    with container(500 * MIB) as group:
        ended = run_inside(group, ["--json", "result.json", "--", *grow(group.limit // MIB)], tmp_path)
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


@pytest.mark.large
@pytest.mark.parametrize(
    "work", ["sum(range(10**6))", "print('still here', flush=True); time.sleep(0.5)"], ids=["CPU", "output"]
)
def test_work_and_output_are_no_hang(work: str, tmp_path: Path) -> None:
    source = f"import time\nend = time.monotonic() + 6\nwhile time.monotonic() < end: {work}"
    assert run(["--timeout-idle", "0.06", "--", *python(source)], tmp_path).returncode == 0


@needs_cgroups
def test_groups_of_killed_supervisors_are_removed_later(tmp_path: Path) -> None:
    command = [*OOMPH, "--budget", "ram=300MiB", "--", *python("import time; print(1, flush=True); time.sleep(60)")]
    with started(command, tmp_path) as process:
        first_line(process)
        (group,) = budget_groups(process.pid)
        pids = (group / "cgroup.procs").read_text().split()
        process.kill()
    for pid in pids:
        os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: not any(is_alive(int(pid)) for pid in pids))
    assert run(["--budget", "ram=300MiB", "--", "true"], tmp_path).returncode == 0
    assert not group.exists()
