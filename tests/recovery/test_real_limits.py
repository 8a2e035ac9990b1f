"""Limits of the operating system, a budget of RAM, kill -9, and thousands of steps with errors."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.machine import rss_bytes
from oomph.monitor import load_record
from oomph.recovery import Guard
from oomph.recovery._checkpoint import load
from oomph.units import MIB

from .faults import CUDA_OOM, in_split_check
from .nets import differences, guard_of, plain_batch, plain_net

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs the limits and signals of Linux")
# One arena for all threads, each of which would reserve 64 MiB of address space; freed tensors leave the process.
PREDICTABLE_MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(MIB)}
REPO = Path(__file__).parent.parent.parent


def start_process(
    kind: str, folder: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    source = str(Path(oomph.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.recovery.training_process", kind, str(folder)],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_process(kind: str, folder: Path, environment: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Run a process to its end and return its result."""
    with start_process(kind, folder, environment) as process:
        _, output = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return json.loads((folder / "out.json").read_text())


@pytest.mark.large
@pytest.mark.parametrize("kind", ["address_space_limit", "data_limit"])
def test_a_limit_of_the_operating_system_splits_the_batch(kind: str, tmp_path: Path) -> None:
    steps = run_process(kind, tmp_path, PREDICTABLE_MALLOC)
    assert steps[0]["micro_batches"] > 1
    assert steps[0]["retries"] >= 1
    assert {step["micro_batches"] for step in steps} == {steps[0]["micro_batches"]}
    assert steps[1]["retries"] == 0


@pytest.mark.large
def test_a_budget_of_ram_splits_the_batch_before_it_is_exceeded(tmp_path: Path) -> None:
    outcome = run_process("budget", tmp_path)
    assert outcome["micro_batches"][0] > 1
    assert sum(outcome["validation_sizes"]) == 58
    assert max(outcome["validation_sizes"]) < 58
    # The budget is checked between modules, and a module may need a little more than the one before it.
    assert outcome["bytes_over_budget"] < 16 * MIB


def wait_for_end(pid: int) -> None:
    for _ in range(500):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.01)


@pytest.mark.medium
def test_a_run_that_is_killed_repeatedly_continues_from_its_checkpoint(tmp_path: Path) -> None:
    delays = random.Random(4)  # noqa: S311  no secrets
    saved = 0
    with start_process("fork_for_each_line", tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            process.stdin.write("start\n")
            process.stdin.flush()
            output = dict(process.stdout.readline().split() for _ in range(2))
            assert int(output["steps"]) == saved
            time.sleep(delays.uniform(0.05, 0.3))
            os.kill(int(output["pid"]), signal.SIGKILL)
            killed_at = time.time()
            wait_for_end(int(output["pid"]))
            record = load_record(tmp_path / "run.jsonl")
            assert not record.has_ended
            assert record.last_time > killed_at - 1
            if (tmp_path / "last.pt").exists():
                saved = load(tmp_path / "last.pt")["guard"]["steps"]
        process.stdin.close()
        assert process.wait(30) == 0
    assert len(record.start_times) == 3
    assert saved > 2
    net = plain_net()
    guard = guard_of(net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01))
    for step in range(saved):
        guard.step(plain_batch(seed=step))
    assert differences(load(tmp_path / "last.pt")["model"], dict(net.state_dict())) == []


def momentum_guard() -> Guard:
    net = plain_net()
    return guard_of(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), cooldown_steps=5)


@pytest.mark.large
def test_thousands_of_steps_with_errors_leak_nothing_and_regain_their_speed() -> None:
    """Every tenth of 2,000 steps runs out of memory."""
    guard, undisturbed = momentum_guard(), momentum_guard()
    batch, failures = plain_batch(4), [0]

    def forward(model: nn.Module, batch: Any) -> Tensor:
        if not in_split_check() and guard.steps % 10 == 0 and failures[0] <= guard.steps // 10:
            failures[0] += 1
            large = torch.zeros(1 << 18)  # 1 MiB: 200 of them would be noticed
            raise torch.OutOfMemoryError(CUDA_OOM + f" {large.numel()}")
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    sizes, counts = [], []
    for step in range(2_000):
        counts.append(guard.step(batch, forward=forward).micro_batches)
        if step in {500, 1_999}:
            gc.collect()
            sizes.append(rss_bytes())
    assert failures[0] == 200
    assert sizes[1] - sizes[0] < 16 * MIB
    assert 1 in counts[1_900:], "micro-batches grow back between errors"
    quiet = [guard.step(batch).micro_batches for _ in range(60)]
    assert quiet[-1] == 1
    # In turns, because other load on the machine varies. Four micro-batches take about three times as long.
    seconds = [[each.step(batch).seconds for each in (guard, undisturbed)] for _ in range(400)]
    after, usual = (sorted(times)[40] for times in zip(*seconds, strict=True))
    assert after < 1.6 * usual, "the speed is back"
