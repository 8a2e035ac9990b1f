"""Measures the memory that CUDA operations take besides their results, in the networks that use them.

    python benchmarks/operations.py --out operations.jsonl [--seconds 300] [--convolving] [name …]
    python benchmarks/operations.py --out pointwise.jsonl --pointwise

Runs one training step of each configuration (of the zoo and of the third-party models) in its own process, several at
a time. A row holds the arguments of an operation and the bytes at its peak beyond its results, if these are at least
256 KiB. A convolution of a new shape is also run pass by pass: forward, the input's gradient, the weight's gradient.
`--pointwise` measures a grid of pointwise convolutions instead.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
PARALLEL_RUNS = 14
MIN_EXTRA = 256 * 1024
PASSES = ("input_gradient", "weight_gradient")


class OperationMeasurement(TorchDispatchMode):
    """Measures each operation with new arguments while a network runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows: dict[str, dict[str, Any]] = {}
        self.seen: set[str] = set()

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
        else:
            return self._run(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation and add a row if it takes memory besides its results."""
        row = {"op": str(func), "args": tree_map(describe, [*args, *kwargs.values()])}
        key = json.dumps(row)
        if key in self.seen:
            return func(*args, **kwargs)
        self.seen.add(key)
        torch.cuda.reset_peak_memory_stats()
        results = func(*args, **kwargs)
        extra = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        if extra >= MIN_EXTRA:
            self.rows[key] = {**row, "extra": extra}
        return results

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


def describe(value: Any) -> Any:
    """Return a value that can be written to JSON: for a tensor its dtype, shape and layout."""
    if isinstance(value, Tensor):
        return [str(value.dtype).removeprefix("torch."), list(value.shape), layout(value)]
    return value if isinstance(value, (int, float, bool, type(None))) else str(value)


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
    with OperationMeasurement() as measurement:
        step.run()
    return [{"name": name, **row} for row in measurement.rows.values()]


def measure_pointwise(dtype: str) -> list[dict[str, Any]]:
    """Return the rows of a grid of pointwise convolutions."""
    channels = ((64, 256), (128, 512), (160, 960), (960, 160), (256, 1024), (1024, 256), (320, 1280), (384, 1536))
    more = ((512, 512), (512, 1024), (1024, 512), (768, 768), (1024, 1024), (512, 2048), (2048, 512), (1536, 2048))
    grid = itertools.product((4, 8, 16, 32, 64, 128, 256), (7, 8, 10, 14, 16, 20, 28), channels + more)
    with OperationMeasurement() as measurement:
        for batch, side, (ins, outs) in grid:
            if batch * (ins + outs) * side**2 <= 1 << 28:
                x = torch.zeros(batch, ins, side, side, device="cuda", dtype=getattr(torch, dtype), requires_grad=True)
                weight = torch.zeros(outs, ins, 1, 1, device="cuda", dtype=x.dtype, requires_grad=True)
                torch.nn.functional.conv2d(x, weight).sum().backward()
    return [{"name": "grid", **row} for row in measurement.rows.values() if "weight" in row]


def start_process(name: str) -> tuple[subprocess.Popen[bytes], IO[str]]:
    """Start the measurement of a configuration."""
    command = [sys.executable, __file__, "one", name]
    output = tempfile.TemporaryFile("w+")  # noqa: SIM115  a pipe would fill up
    # More threads would only compete for the cores.
    environ = {**os.environ, "OMP_NUM_THREADS": "2", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    return subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=environ), output


def names(convolving: bool) -> list[str]:  # noqa: FBT001
    """Return the names of the configurations, without those of thousands of tiny operations."""
    from zoo import configs, third_party

    excluded = ["mamba", "rwkv"] + (["gpt", "bert", "llama", "lstm", "gru", "rnn", "mlp"] if convolving else [])
    selected = {
        name for name, config in third_party().items() if not convolving or config.family != "transformers"
    } | set(configs())
    return sorted(name for name in selected if not name.startswith(tuple(excluded)))


def main() -> None:
    """Measure all configurations until the deadline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--convolving", action="store_true", help="only networks that convolve")
    parser.add_argument("--pointwise", action="store_true", help="a grid of pointwise convolutions")
    options = parser.parse_args()
    queue = ["float32", "float16", "bfloat16"] if options.pointwise else options.names or names(options.convolving)
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
    print(f"{len(seen)} operations")


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        grid = sys.argv[2] in {"float32", "float16", "bfloat16"}
        for line in measure_pointwise(sys.argv[2]) if grid else measure(sys.argv[2]):
            print(json.dumps(line))
    else:
        main()
