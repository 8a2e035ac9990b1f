"""A planned DataLoader inside a container's limits: 2 GiB for all processes and 64 MB of /dev/shm."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oomph
from oomph.units import GIB

pytestmark = pytest.mark.large
CGROUP = Path("/sys/fs/cgroup/memory")
TRAINING = """
import sys, torch, oomph
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __len__(self):
        return 320
    def __getitem__(self, index):
        if not 0 <= index < 320:
            raise IndexError
        return torch.full((3, 256, 256), index / 320), index % 10

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))

if __name__ == "__main__":
    job = oomph.Job(
        model=build,
        batch=lambda count, size: (torch.zeros(count, 3, 256, 256), torch.zeros(count, dtype=torch.long)),
        loss=nn.functional.cross_entropy,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )
    photos = Photos()
    options = {"num_workers": 8, "prefetch_factor": 4, "pin_memory": True}
    if sys.argv[1] == "planned":
        loader = oomph.plan(job, oomph.Settings(batch=16), "cpu", dataset=photos).loader
        options = loader.dataloader_kwargs
        print(loader, flush=True)
    model = job.model()
    optimizer = job.optimizer(model)
    for step, (images, labels) in enumerate(DataLoader(photos, batch_size=16, **options)):
        job.loss(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    print("finished after", step + 1, "steps")
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[list[str]]:
    """Return the beginning of a command line that runs a program inside the limits."""
    group = CGROUP / f"oomph-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(2 * GIB))
    except OSError:
        pytest.skip("needs the right to create a cgroup")
    script = tmp_path / "enter.sh"
    script.write_text(
        f'echo $$ > {group}/cgroup.procs && mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"\n', encoding="utf-8"
    )
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs the right to create a mount namespace")
    yield ["unshare", "--mount", "sh", str(script)]
    with contextlib.suppress(OSError):
        group.rmdir()


def run(command: list[str], seconds: float) -> tuple[int | None, str, str]:
    """Return the exit code, None if it hangs, with all that it printed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(oomph.__file__).parents[1])}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            return None, output, errors
    return process.returncode, output, errors


def test_only_the_planned_loader_runs_inside_the_limits(container: list[str], tmp_path: Path) -> None:
    program = tmp_path / "training.py"
    program.write_text(TRAINING)
    command = [*container, sys.executable, str(program)]
    code, output, errors = run([*command, "planned"], 120)
    assert code == 0, errors
    assert "finished after 20 steps" in output
    assert "workers=0" not in output
    code, output, errors = run([*command, "naive"], 60)
    assert "finished" not in output
    assert code is None or "shared memory" in errors  # torch's workers report a full /dev/shm, or wait for ever
    assert run([sys.executable, str(program), "naive"], 120)[0] == 0, "it fails without the limits, too"
