"""Switch off one correction of the trace at a time and print the error of the allocated peak.

python benchmarks/ablation.py benchmarks/results/memory-h200-2026-11-15.jsonl name …
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]


@contextlib.contextmanager
def do_nothing(*_: object) -> Iterator[None]:
    """Replacement for a correction that is switched off."""
    yield


def variants() -> dict[str, Any]:
    """Return the context that switches each correction off."""
    from oomph.trace import _allocation_recorder, _device, _step
    from oomph.trace.kernels import CUDA_RULES

    convolutions = {key for key in CUDA_RULES if "convolution" in key}
    reductions = {key for key in CUDA_RULES if ".sum." in key or ".mean." in key}
    return {
        "everything on": do_nothing,
        "matrix workspaces off": lambda: mock.patch.object(_device.CudaDevice, "cublas_workspace", 0),
        "convolution workspaces off": lambda: _without(_allocation_recorder, convolutions),
        "scratch memory of reductions off": lambda: _without(_allocation_recorder, reductions),
        "all temporaries within operations off": lambda: _without(_allocation_recorder, set(CUDA_RULES)),
        "CUDA's autocast lists off": lambda: mock.patch.object(_step, "CudaAutocast", do_nothing),
        "CUDA's attention, dropout and recurrent kernels off": lambda: mock.patch.object(
            _step, "CudaKernels", do_nothing
        ),
        "multi-tensor optimizers off": lambda: mock.patch("oomph.trace._fake_job._is_single_tensor", lambda _: True),
    }


def _without(module: Any, names: set[str]) -> Any:
    rules = {name: rule for name, rule in module.CUDA_RULES.items() if name not in names}
    return mock.patch.object(module, "CUDA_RULES", rules)


def error_percent(config: Any, measured: int) -> float | None:
    """Return the error of the traced peak in percent; None if the job can't be traced."""
    from oomph.errors import UsageError
    from oomph.prediction import replay
    from oomph.settings import AllocatorConfig
    from oomph.trace import CudaDevice, trace_step

    try:
        trace = trace_step(config.job, config.settings, CudaDevice())
    except (UsageError, RuntimeError):
        return None
    return 100 * (replay(trace, AllocatorConfig(expandable=True)).allocated / measured - 1)


def main() -> None:
    """Print one row per variant."""
    from zoo import configs

    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    measured = {row["name"]: row["allocated"] for row in rows if row["allocator"] == "expandable"}
    names = sys.argv[2:] or list(measured)
    print("| correction | median | largest | not traced |\n|---|---|---|---|")
    for description, switched_off in variants().items():
        with switched_off():
            errors = [error_percent(configs()[name], measured[name]) for name in names]
        traced = sorted((abs(error) for error in errors if error is not None), reverse=True)
        print(
            f"| {description} | {statistics.median(traced):.3f} % | {traced[0]:.1f} % | {len(errors) - len(traced)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
