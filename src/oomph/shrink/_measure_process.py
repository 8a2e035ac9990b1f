"""The process that a variant is measured in: `python -m oomph.shrink._measure_process TASK`.

It imports what running the file needs and nothing else: for an exported file no torch, unless its runtime needs it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..detect import is_exported, open_exported
from ..errors import OomphError
from ..machine import peak_rss_bytes
from ._measure_task import MeasureTask

_Network = Callable[[NDArray[np.float32]], list[NDArray[np.float32]]]


def measure(task: MeasureTask) -> dict[str, Any]:
    """Return the seconds of each run and the peak RSS, and write the outputs of the first images."""
    file = Path(task.file)
    run = open_exported(file, task.threads).run if is_exported(file) else _open_weights(task)
    images = np.load(task.images, mmap_mode="r")
    seconds = []
    for number in range(task.warmup + task.runs):
        pixels = _as_input(images[number % len(images)])
        start = time.perf_counter()
        run(pixels)
        seconds.append(time.perf_counter() - start)
    memory = peak_rss_bytes()
    outputs = [run(_as_input(image)) for image in images[: task.compared]]
    rows = [np.concatenate([level.ravel() for level in levels]) for levels in outputs]
    np.save(task.outputs, np.stack(rows))
    return {"seconds": seconds[task.warmup :], "memory": memory}


def _as_input(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.asarray(image, dtype=np.float32)[None] / np.float32(255)


def _open_weights(task: MeasureTask) -> _Network:
    import torch  # noqa: PLC0415  exported files run without it

    from ..detect import HeadOutputs, read_weights  # noqa: PLC0415

    torch.set_num_threads(task.threads)
    network = HeadOutputs(read_weights(Path(task.file)).build()).eval()

    @torch.inference_mode()
    def run(pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return [output.numpy() for output in network(torch.from_numpy(pixels))]

    return run


def main() -> None:
    """Run the task of the command line and print the result as JSON."""
    try:
        result = measure(MeasureTask(**json.loads(sys.argv[1])))
    except OomphError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
