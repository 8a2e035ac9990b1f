"""The rules for memory within operations against operations measured in whole networks on an H200."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from oomph.trace import CudaDevice
from oomph.trace.kernels._cuda_rules import CUDA_RULES
from oomph.trace.kernels._rules import AllocateTemporary
from oomph.units import MIB

FILE = Path(__file__).parent / "recorded/operations_h200.json.gz"
RECORDED: dict[str, list[tuple[list[Any], int]]] = defaultdict(list)
for op, args, extra in json.loads(gzip.decompress(FILE.read_bytes()))["operations"]:
    RECORDED[op].append((args, extra))


def meta(value: Any) -> Any:
    """Return a tensor without data for a recorded dtype, shape and layout; other values as they are."""
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[0], str):
        return value
    tensor = torch.empty(value[1], dtype=getattr(torch, value[0]), device="meta")
    return tensor.contiguous(memory_format=torch.channels_last) if value[2] == "channels_last" else tensor


def bytes_beyond_results(op: str, args: tuple[Any, ...]) -> int:
    """Return the most bytes that the rule of an operation holds besides its results."""
    _, name, overload = op.split(".")
    result = getattr(getattr(torch.ops.aten, name), overload)(*args)
    held = peak = 0
    for step in CUDA_RULES[op](args, result if isinstance(result, tuple) else (result,), CudaDevice()):
        if isinstance(step, AllocateTemporary):
            peak = max(peak, held + step.size)
            held += step.size if step.hold else 0
    return peak


@pytest.mark.parametrize("op", RECORDED)
def test_rules_match_operations_that_were_measured(op: str) -> None:
    """The default allocator, with which they were measured, may return up to 1 MiB more than requested."""
    for args, extra in RECORDED[op]:
        predicted = bytes_beyond_results(op, tuple(meta(value) for value in args))
        assert predicted == pytest.approx(extra, rel=0.03, abs=MIB), args
