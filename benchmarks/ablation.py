"""Switches one correction off at a time and says how far the peak of allocated memory is then off.

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
def nothing() -> Iterator[None]:
    """Stands in for a correction that is switched off."""
    yield


class OwnAutocast:
    """The CPU's own autocast in place of CUDA's."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> OwnAutocast:  # noqa: PYI034  Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None: ...


def variants() -> dict[str, Any]:
    """Each correction and how to switch it off."""
    from oomph.trace import _device, _recorder, _step, _temporaries

    convolutions = {key: None for key in _temporaries.RULES if "convolution" in key}
    sums = {key: None for key in _temporaries.RULES if ".sum." in key or ".mean." in key}
    return {
        "everything on": nothing,
        "matrix workspaces off": lambda: mock.patch.object(_device.Device, "blas_workspace", 0),
        "convolution workspaces off": lambda: _without(_recorder, convolutions),
        "scratch of reductions off": lambda: _without(_recorder, sums),
        "all temporaries within operations off": lambda: _without(_recorder, dict(_temporaries.RULES)),
        "CUDA's autocast lists off": lambda: mock.patch.object(_step, "CudaAutocast", OwnAutocast),
        "CUDA's attention, dropout and recurrent kernels off": lambda: mock.patch.object(
            _step, "CudaKernels", lambda *_: nothing()
        ),
        "multi-tensor optimizers off": lambda: mock.patch("oomph.trace._build._single", lambda _: True),
    }


def _without(module: Any, rules: dict[str, Any]) -> Any:
    return mock.patch.object(module, "RULES", {key: rule for key, rule in module.RULES.items() if key not in rules})


def error(config: Any, truth: int) -> float | None:
    """How far the traced peak is off, in percent; None where it can't be traced."""
    from oomph.errors import UsageError
    from oomph.prediction import Rules, replay
    from oomph.trace import Device, trace_step

    try:
        trace = trace_step(config.job, config.settings, Device())
    except (UsageError, RuntimeError):
        return None
    return 100 * (replay(trace, Rules(expandable=True)).allocated / truth - 1)


def main() -> None:
    """Print one row a variant."""
    from zoo import configs

    truths = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    wanted = {row["name"]: row["allocated"] for row in truths if row["allocator"] == "expandable"}
    names = sys.argv[2:] or list(wanted)
    print("| correction | median | largest | not traced |\n|---|---|---|---|")
    for words, switch in variants().items():
        with switch():
            errors = [error(configs()[name], wanted[name]) for name in names]
        found = sorted((abs(value) for value in errors if value is not None), reverse=True)
        print(
            f"| {words} | {statistics.median(found):.3f} % | {found[0]:.1f} % | {len(errors) - len(found)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
