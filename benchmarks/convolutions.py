"""Measures the memory that cuDNN's convolutions take besides their results, in the networks that use them.

    python benchmarks/convolutions.py --out convolutions.jsonl [--seconds 300] [name …]

Runs one training step of each configuration (of the zoo and of the third-party models that convolve) in its own
process, several at a time. Each convolution of a new shape is run on its own: forward, the input's gradient and the
weight's gradient. A row holds the bytes at the peak beyond the result for each of the three.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
PARALLEL_RUNS = 10
PASSES = ("input_gradient", "weight_gradient")


class ConvolutionMeasurement(TorchDispatchMode):
    """Measures each convolution of a new shape while a network runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows: dict[str, dict[str, Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            row = self._row(args[0], args[1], args[3:9])
            if "forward" not in row:
                row["forward"] = extra_bytes(func, args)
        elif func is torch.ops.aten.convolution_backward.default:
            row = self._row(args[1], args[2], args[4:10])
            for index, name in enumerate(PASSES):
                if args[10][index] and name not in row:
                    row[name] = extra_bytes(func, (*args[:10], [position == index for position in range(3)]))
        return func(*args, **(kwargs or {}))

    def _row(self, x: Tensor, weight: Tensor, options: tuple[Any, ...]) -> dict[str, Any]:
        """Return the row of a convolution; equal ones share it."""
        stride, padding, dilation, transposed, _, groups = options
        row = {
            "dtype": str(x.dtype).removeprefix("torch."),
            "input": list(x.shape),
            "weight": list(weight.shape),
            "stride": list(stride),
            "padding": list(padding),
            "dilation": list(dilation),
            "transposed": transposed,
            "groups": groups,
            "layout": layout(x),
            "weight_layout": layout(weight),
        }
        return self.rows.setdefault(json.dumps(row), row)


def layout(tensor: Tensor) -> str:
    """Return the memory layout of a tensor."""
    if tensor.is_contiguous():
        return "contiguous"
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return "channels_last" if last is not None and tensor.is_contiguous(memory_format=last) else "other"


def extra_bytes(func: Any, args: tuple[Any, ...]) -> int:
    """Return the bytes at the peak of an operation beyond its results."""
    torch.cuda.reset_peak_memory_stats()
    results = func(*args)  # kept until the memory was read
    extra = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    del results
    return extra


def measure(name: str) -> list[dict[str, Any]]:
    """Return the rows of a configuration."""
    from zoo import configs, third_party

    from oomph.monitor import TrainingStep

    config = {**configs(), **third_party()}[name]
    step = TrainingStep(config.job, config.settings, torch.device("cuda"))
    with ConvolutionMeasurement() as measurement:
        step.run()
    return [{"name": name, **row} for row in measurement.rows.values()]


def start_process(name: str) -> tuple[subprocess.Popen[bytes], IO[str]]:
    """Start the measurement of a configuration."""
    command = [sys.executable, __file__, "one", name]
    output = tempfile.TemporaryFile("w+")  # noqa: SIM115  a pipe would fill up
    return subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL), output


def main() -> None:
    """Measure all configurations until the deadline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    from zoo import configs, third_party

    text = ("gpt", "bert", "llama", "lstm", "gru", "rnn", "mlp")
    convolving = {name for name, config in third_party().items() if config.family != "transformers"}
    convolving |= {name for name in configs() if not name.startswith(text)}
    convolving |= {"detr-fp32", "dpt-fp16", "wav2vec2-fp32", "hubert-fp16", "hf-swin-bf16", "convnext-hf-fp32"}
    queue = options.names or sorted(convolving)
    deadline = time.time() + options.seconds
    running: list[tuple[subprocess.Popen[bytes], IO[str]]] = []
    seen: set[str] = set()
    while running or (queue and time.time() < deadline):
        while queue and len(running) < PARALLEL_RUNS and time.time() < deadline:
            running.append(start_process(queue.pop(0)))
        for process, output in [pair for pair in running if pair[0].poll() is not None]:
            running.remove((process, output))
            output.seek(0)
            rows = [json.loads(line) for line in output if line.startswith('{"name"')]
            new = {json.dumps({**row, "name": ""}): row for row in rows}
            with options.out.open("a") as out:
                out.writelines(json.dumps(row) + "\n" for key, row in new.items() if key not in seen)
            seen |= set(new)
        if time.time() > deadline + 40:
            for process, _ in running:
                process.kill()
            break
        time.sleep(0.1)
    print(f"{len(seen)} shapes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        for line in measure(sys.argv[2]):
            print(json.dumps(line))
    else:
        main()
