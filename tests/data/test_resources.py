from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oomph.data import read_resources
from oomph.data._resources import MemoryMeter
from oomph.units import MIB

from .images import save_photos


def test_local_ranks_share_the_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = read_resources()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    shared = read_resources()
    assert shared.memory == pytest.approx(alone.memory / 4, rel=0.1)
    assert shared.cores == max(alone.cores // 4, 1)


@pytest.mark.medium
def test_address_space_limit_is_respected(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 2)
    code = (
        "import resource\n"
        "from oomph.data import ImageIndex, plan_loader\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({600 * MIB}, {600 * MIB}))\n"
        f"plan = plan_loader(ImageIndex.of({files!r}), 64, 2)\n"
        "print(plan.resources.limited_by, plan.budget, plan.resources.memory, sep=',')\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    limit, budget, memory = output.split(",")
    assert limit == "data limit"
    assert int(memory) < 600 * MIB
    assert int(budget) == max(int(memory) // 4, 64 * MIB)


@pytest.mark.medium
def test_shared_memory_of_a_worker_is_not_counted(tmp_path: Path) -> None:
    shared, private = 64 * MIB, 16 * MIB
    (tmp_path / "shared").write_bytes(bytes(shared))
    code = (
        "import mmap, sys\n"
        "with open(sys.argv[1], 'r+b') as file: shared = mmap.mmap(file.fileno(), 0)\n"
        "private = b'1' * int(sys.argv[2]); touched = sum(shared[:: 4096]); print('ready', flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "shared"), str(private)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        meter = MemoryMeter()
        meter.sample([child.pid])
        child.kill()
    assert private < meter.workers < private + shared / 2
