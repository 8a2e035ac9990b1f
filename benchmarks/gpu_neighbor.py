"""Take most of a GPU for a while, as another user of it would: `python benchmarks/gpu_neighbor.py --seconds 20`."""

from __future__ import annotations

import argparse
import time

import torch

_GIB = 2**30


def main() -> None:
    """Allocate what is free, again whenever more becomes free, and keep it until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--left", type=float, default=6.0, help="GiB that stay free")
    arguments = parser.parse_args()
    blocks = []
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        size = torch.cuda.mem_get_info()[0] - int(arguments.left * _GIB)
        if size > _GIB // 4:
            blocks.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        time.sleep(0.5)


if __name__ == "__main__":
    main()
