"""Compares the attention kernels that oomph expects with those that torch chooses on this machine's GPU.

python benchmarks/attention.py [--out attention.json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
BACKENDS = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
WIDTHS = (12, 16, 64, 80, 128, 192, 256)
HEADS = ("equal", "grouped", "broadcast")
MASKS = (None, "boolean", "number", "expanded", "strided", "learned")


def mask_of(kind: str | None, dtype: torch.dtype, keys: int) -> torch.Tensor | None:
    """Return a mask of a kind."""
    options: dict[str, Any] = {"device": "cuda", "dtype": dtype}
    if kind is None:
        return None
    if kind == "boolean":
        return torch.ones(2, 1, 64, keys, device="cuda", dtype=torch.bool)
    if kind == "expanded":
        return torch.zeros(2, 1, 1, keys, **options).expand(2, 8, 64, keys)
    if kind == "strided":
        return torch.zeros(64, keys, 8, **options).permute(2, 0, 1)[None]
    return torch.zeros(2, 8, 64, keys, **options).requires_grad_(kind == "learned")


def cases() -> Iterator[dict[str, Any]]:
    """Yield the arguments of calls."""
    shapes = itertools.product(DTYPES, WIDTHS, HEADS, MASKS, (0.0, 0.1, 0.125), (False, True), (64, 48))
    for dtype, width, heads, mask, dropout, causal, keys in shapes:
        if not (causal and mask):
            names = ("dtype", "width", "heads", "mask", "dropout", "causal", "keys")
            yield dict(zip(names, (dtype, width, heads, mask, dropout, causal, keys), strict=True))


def compare(case: dict[str, Any]) -> tuple[str, str]:
    """Return the kernels that torch and oomph choose."""
    from oomph.trace import CudaDevice
    from oomph.trace.kernels._attention import AttentionCall, choose_backend

    options: dict[str, Any] = {"device": "cuda", "dtype": case["dtype"], "requires_grad": True}
    key_heads = {"equal": 8, "grouped": 2, "broadcast": 1}[case["heads"]]
    q = torch.zeros(2, 8, 64, case["width"], **options)
    k = torch.zeros(2, key_heads, case["keys"], case["width"], **options)
    mask, grouped = mask_of(case["mask"], case["dtype"], case["keys"]), case["heads"] == "grouped"
    chosen = torch._fused_sdp_choice(q, k, k, mask, case["dropout"], case["causal"], enable_gqa=grouped)
    call = AttentionCall(q, k, k, mask, case["dropout"], case["causal"], None, grouped)
    device = CudaDevice(capability=torch.cuda.get_device_capability(), cudnn=torch.backends.cudnn.version() or 0)
    return BACKENDS.get(int(chosen), str(chosen)), choose_backend(call, device).value


def main() -> None:
    """Print how many choices agree, and those that don't."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [{**case, "dtype": str(case["dtype"]), "choices": compare(case)} for case in cases()]
    wrong = [row for row in rows if row["choices"][0] != row["choices"][1]]
    print(
        f"{len(rows) - len(wrong)} of {len(rows)} choices agree on {torch.cuda.get_device_name()}, {torch.__version__}"
    )
    for row in wrong[:60]:
        print(row)
    print(Counter(row["choices"] for row in wrong))
    if options.out:
        options.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
