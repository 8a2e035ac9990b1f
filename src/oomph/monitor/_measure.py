"""A few real training steps on this machine's device, in a process of their own, and what they took.

The step is the one that is predicted: see `trace/_step.py`, whose order of events this follows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from .. import document
from ..errors import OomphError
from ..job import load_job
from ..machine import peak_rss_bytes
from ..settings import Settings

if TYPE_CHECKING:
    import torch

    from ..job import Job

STEPS = 5
# Small enough that no step is skipped on random data: a skipped one would leave the optimizer without its state.
_SCALE = 256.0
_MARK = "oomph-measured:"
_START = f"import sys; from oomph.monitor._measure import child; child({_MARK!r})"


@dataclass(frozen=True)
class Measurement:
    """What a few steps took.

    Attributes:
        device: the GPU's name, or "cpu".
        software: versions of torch and CUDA that they ran with.
        allocated: `torch.cuda.max_memory_allocated`; on the CPU the growth of resident memory over the imports.
        reserved: `torch.cuda.max_memory_reserved`; on the CPU the same again.
        outside: bytes of the device that this process held outside of the allocator; 0 on the CPU.
        host: most resident memory of the process.
        seconds: time of a step, the shortest of those after the second.
    """

    device: str
    software: str
    allocated: int
    reserved: int
    outside: int
    host: int
    seconds: float


def measure(reference: str, settings: Settings) -> Measurement:
    """Run a few steps of a Job on this machine's device, in a fresh process.

    Args:
        reference: the Job, as `path/to/file.py:function`.
        settings: how it is trained.

    Raises:
        OomphError: it died; the reason is what its process said last.
    """
    text = {"default": "", "expandable": "expandable_segments:True"}.get(settings.allocator, settings.allocator)
    environ = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": text, "PYTORCH_ALLOC_CONF": text}
    asked = json.dumps({"job": reference, "settings": document.encode(settings)})
    # Our own interpreter with our own words.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _START], input=asked, env=environ, capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return Measurement(**json.loads(line.removeprefix(_MARK)))
    words = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
    raise OomphError(f"the measured run died: {words[-1][:300]}", "ask for less, or run `oomph explain` on its output")


def child(mark: str) -> None:
    """The measured process: a Job and settings come in, what they took goes out."""
    asked = json.loads(sys.stdin.read())
    size = asked["settings"]["size"]
    asked["settings"]["size"] = tuple(size) if isinstance(size, list) else size
    found = _run(load_job(asked["job"]), Settings(**asked["settings"]))
    sys.stdout.write(mark + json.dumps(document.encode(found)) + "\n")


def _run(job: Job, settings: Settings) -> Measurement:
    import torch  # noqa: PLC0415  only the measured process needs it
    from torch import nn  # noqa: PLC0415

    gpu = torch.cuda.is_available()
    torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)  # torch imports much more when it makes its first optimizer
    before = psutil.Process().memory_info().rss
    times = _train(job, settings, torch.device("cuda" if gpu else "cpu"))
    host = peak_rss_bytes()
    if not gpu:
        return Measurement("cpu", f"torch {torch.__version__}", host - before, host - before, 0, host, times)
    free, total = torch.cuda.mem_get_info()
    return Measurement(
        device=torch.cuda.get_device_name(),
        software=f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
        allocated=torch.cuda.max_memory_allocated(),
        reserved=torch.cuda.max_memory_reserved(),
        outside=max(total - free - torch.cuda.memory_reserved(), 0),
        host=host,
        seconds=times,
    )


def _train(job: Job, settings: Settings, device: torch.device) -> float:
    import torch  # noqa: PLC0415
    from torch.utils._pytree import tree_map  # noqa: PLC0415

    from ..patches import blocks, checkpoint, convert_batch, convert_model, set_variant  # noqa: PLC0415

    low = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(settings.precision)
    model = job.model().to(device).train()
    convert_model(model, settings)
    if settings.checkpointing == "blocks":
        checkpoint(model, blocks(model))
    assert job.optimizer is not None  # noqa: S101  a Job has one
    optimizer = job.optimizer(model)
    set_variant(optimizer, settings.optimizer)
    scaler = torch.amp.GradScaler(device.type, init_scale=_SCALE, enabled=settings.precision == "amp-fp16")

    def move(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        for count in settings.micro_batch_sizes:
            batch = convert_batch(tree_map(move, job.batch(count, settings.size)), settings)
            with torch.autocast(device.type, low or torch.bfloat16, enabled=low is not None):
                loss = job.run(model, batch)
            scaler.scale(loss / len(settings.micro_batch_sizes)).backward()
            del batch, loss
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times[2:])
