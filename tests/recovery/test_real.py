"""The real thing: limits of the system, thousands of steps, and kill -9."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from oomph.recovery._meter import resident
from oomph.recovery._saving import load
from torch import Tensor, nn

import oomph
from oomph.monitor import load_record
from oomph.recovery import Guard
from oomph.units import MIB

from .faults import CUDA
from .nets import differences, plain_batch, plain_net

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and signals as Linux has them")
REPO = Path(__file__).parent.parent.parent


def start(kind: str, folder: Path) -> subprocess.Popen[str]:
    source = str(Path(oomph.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.recovery.loop", kind, str(folder)],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(kind: str, folder: Path) -> Any:
    with start(kind, folder) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize("kind", ["limited", "limited_data"])
def test_a_limit_of_the_address_space_or_of_data_splits_the_batch(kind: str, tmp_path: Path) -> None:
    steps = finish(kind, tmp_path)
    assert steps[0][0] > 1
    assert steps[0][1] >= 1
    assert [pieces for pieces, _ in steps] == [steps[0][0]] * 3
    assert [retries for _, retries in steps[1:]] == [0, 0]


def test_a_budget_of_ram_splits_before_it_is_broken(tmp_path: Path) -> None:
    found = finish("budgeted", tmp_path)
    assert found["pieces"][0] > 1
    assert sum(found["validation"]) == 116
    assert max(found["validation"]) < 58
    assert found["over"] < 16 * MIB  # it looks between modules, and one of them may take a little more than the last


def test_ten_thousand_steps_with_faults_in_every_tenth_hold_nothing() -> None:
    guard, undisturbed = (_growing(plain_net()) for _ in range(2))
    batch = plain_batch(4)
    first, faults = guard.steps, [0]

    def forward(model: nn.Module, batch: Any) -> Tensor:
        step = guard.steps - first
        if step % 10 == 0 and faults[0] <= step // 10:
            faults[0] += 1
            kept = torch.zeros(1 << 18)  # 1 MiB: a thousand of them would be seen
            raise torch.OutOfMemoryError(CUDA + f" {kept.numel()}")
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    sizes, pieces = [], []
    for step in range(10_000):
        pieces.append(guard.step(batch, forward=forward).pieces)
        if step in {2_000, 9_999}:
            gc.collect()
            sizes.append(resident())
    assert faults[0] == 1000
    assert sizes[1] - sizes[0] < 16 * MIB
    assert 1 in pieces[9_900:], "it grows back between faults"
    calm = [guard.step(batch).pieces for _ in range(60)]
    assert calm[-1] == 1
    # In turn, because other work on the machine comes and goes. Four pieces take about three times as long.
    seconds = [[one.step(batch).seconds for one in (guard, undisturbed)] for _ in range(400)]
    after, usual = (sorted(own)[40] for own in zip(*seconds, strict=True))
    assert after < 1.6 * usual, "throughput returns"


def _growing(net: nn.Module) -> Guard:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    return oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, calm=5)


def _wait_for_end(pid: int) -> None:
    for _ in range(500):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.01)


def test_killed_twenty_times_a_run_goes_on_from_what_it_saved(tmp_path: Path) -> None:
    chance = random.Random(4)  # noqa: S311  when to kill
    saved = 0
    with start("again", tmp_path) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        for _ in range(20):
            starter.stdin.write("again\n")
            starter.stdin.flush()
            said = dict(starter.stdout.readline().split() for _ in range(2))
            assert int(said["ready"]) == saved
            time.sleep(chance.uniform(0.0, 0.25))
            os.kill(int(said["started"]), signal.SIGKILL)
            ended = time.time()
            _wait_for_end(int(said["started"]))
            record = load_record(tmp_path / "run.jsonl")
            assert not record.has_ended
            assert record.last_time > ended - 1
            if (tmp_path / "last.pt").exists():
                saved = load(tmp_path / "last.pt")["guard"]["steps"]
        starter.stdin.close()
        assert starter.wait(30) == 0
    assert len(record.start_times) == 20
    assert saved > 20
    straight = plain_net()
    guard = oomph.guard(
        model=straight, optimizer=torch.optim.AdamW(straight.parameters(), lr=0.01), loss=nn.functional.mse_loss
    )
    for step in range(saved):
        guard.step(plain_batch(seed=step))
    assert differences(load(tmp_path / "last.pt")["model"], dict(straight.state_dict())) == []
