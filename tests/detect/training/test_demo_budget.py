"""The demo's budget as a hard limit: a plain loop with the same batch is killed, `oomph train` finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from oomph.units import MIB

pytestmark = [pytest.mark.large, pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's RSS")]

SOURCE = Path(__file__).parents[3] / "src"
PLAIN_LOOP = """
import torch
from oomph.charts import figure_png, new_figure
from oomph.detect import demo_config, detection_job
from pathlib import Path
figure = new_figure(1600, 520)  # `oomph train` draws, too, before the memory that its budget starts from is measured
figure.add_subplot().plot([0, 1])
figure_png(figure)
config = demo_config(Path("data.yaml"), Path("run"))
job = detection_job(config.cfg, classes=3)
model = job.model()
optimizer = job.optimizer(model)
for step in range(30):
    loss = job.step(model, job.batch(config.batch, config.imgsz))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("finished")
"""


def run_limited(command: list[str], folder: Path, limit: int | None = None) -> tuple[int, int]:
    """Run a process, kill it if its RSS exceeds the limit; return its exit code and its largest RSS."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
        watched, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            peak = max(peak, watched.memory_info().rss)
            if limit is not None and peak > limit:
                process.kill()
                break
            time.sleep(0.005)
    return process.returncode, peak


def test_the_demo_finishes_within_a_budget_that_kills_a_plain_loop(tmp_path: Path) -> None:
    code, peak = run_limited([sys.executable, "-m", "oomph", "train", "--epochs", "2"], tmp_path)
    assert code == 0
    plan = json.loads((tmp_path / "runs/train/exp/plan.json").read_text())
    budget = plan["budget"] + plan["reserved"]
    assert peak <= budget
    plain = [sys.executable, "-c", PLAIN_LOOP]
    assert run_limited(plain, tmp_path, budget)[0] == -signal.SIGKILL
    assert run_limited(plain, tmp_path, budget + 400 * MIB)[0] == 0
