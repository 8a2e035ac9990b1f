"""Request of the measuring process. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MeasureTask:
    """A file to run, and how often.

    Attributes:
        file: weights (.pt) or an exported file.
        images: .npy file of images (n, 3, side, side) as uint8.
        outputs: .npy file that is written: the raw outputs of the first images, one row per image.
        threads: number of threads of the network.
        warmup, runs: number of runs, each of one image; those of the warm-up are not timed.
        compared: number of images whose outputs are written.
    """

    file: str
    images: str
    outputs: str
    threads: int = 1
    warmup: int = 5
    runs: int = 40
    compared: int = 4
