"""Measurement of a few training steps on this machine's device, in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import document
from ..errors import OomphError
from ..job import load_job
from ..machine import peak_rss_bytes, rss_bytes
from ..settings import Settings
from ._training_step import TrainingStep

if TYPE_CHECKING:
    from ..job import Job

_STEPS = 5
_WARMUP_STEPS = 2  # not timed
_OUTPUT_PREFIX = "oomph-measurement:"
_CHILD_SCRIPT = "from oomph.monitor._measure import run_child; run_child()"
_MAX_ERROR = 300  # characters of the child's last line


@dataclass(frozen=True)
class Measurement:
    """Memory and time of a few training steps; sizes are in bytes.

    Attributes:
        device: The GPU's name, or "cpu".
        software: Versions of torch and CUDA.
        allocated: `torch.cuda.max_memory_allocated`; on the CPU, the growth of the RSS beyond the imports.
        reserved: `torch.cuda.max_memory_reserved`; on the CPU, equal to `allocated`.
        outside: Device memory of the process outside the allocator; 0 on the CPU.
        host: The peak RSS of the process.
        seconds: The shortest step after the warmup.
    """

    device: str
    software: str
    allocated: int
    reserved: int
    outside: int
    host: int
    seconds: float


def measure(reference: str, settings: Settings) -> Measurement:
    """Run a few training steps of a Job on this machine's device, in a new process.

    Args:
        reference: The Job, as `path/to/file.py:function`.
        settings: The settings to train with.

    Raises:
        OomphError: The process failed; the message contains its last line.
    """
    config = {"default": "", "expandable": "expandable_segments:True"}.get(settings.allocator, settings.allocator)
    environ = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": config, "PYTORCH_ALLOC_CONF": config}
    request = json.dumps({"job": reference, "settings": document.encode(settings)})
    process = subprocess.run(  # noqa: S603  our own interpreter and script
        [sys.executable, "-c", _CHILD_SCRIPT], input=request, env=environ, capture_output=True, text=True, check=False
    )
    for line in process.stdout.splitlines():
        if line.startswith(_OUTPUT_PREFIX):
            return Measurement(**json.loads(line.removeprefix(_OUTPUT_PREFIX)))
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    last_line = lines[-1] if lines else f"exit code {process.returncode}"
    raise OomphError(
        f"the measured run failed: {last_line[:_MAX_ERROR]}", "use less memory, or run `oomph explain` on its output"
    )


def run_child() -> None:
    """Measure the Job and settings on standard input, and print the measurement."""
    request = json.loads(sys.stdin.read())
    values: dict[str, Any] = request["settings"]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    measurement = _measure_job(load_job(request["job"]), Settings(**values))
    sys.stdout.write(_OUTPUT_PREFIX + json.dumps(document.encode(measurement)) + "\n")


def _measure_job(job: Job, settings: Settings) -> Measurement:
    import torch  # noqa: PLC0415  only the measured process needs it
    from torch import nn  # noqa: PLC0415

    has_gpu = torch.cuda.is_available()
    torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)  # the first optimizer imports many more modules of torch
    rss_before = rss_bytes()
    step = TrainingStep(job, settings, torch.device("cuda" if has_gpu else "cpu"))
    seconds = min(step.time(_STEPS)[_WARMUP_STEPS:])
    host = peak_rss_bytes()
    if not has_gpu:
        grown = host - rss_before
        return Measurement("cpu", f"torch {torch.__version__}", grown, grown, 0, host, seconds)
    free, total = torch.cuda.mem_get_info()
    return Measurement(
        device=torch.cuda.get_device_name(),
        software=f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
        allocated=torch.cuda.max_memory_allocated(),
        reserved=torch.cuda.max_memory_reserved(),
        outside=max(total - free - torch.cuda.memory_reserved(), 0),
        host=host,
        seconds=seconds,
    )
