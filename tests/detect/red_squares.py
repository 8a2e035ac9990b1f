"""A dataset of gray images with red squares, and a stand-in for a network that detects them perfectly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from oomph.detect import IndexedSplit, index_split, read_dataset, read_split

WIDTH, HEIGHT = 1024, 704  # the rectangular canvas of image size 992, so whole images aren't scaled
SIDE = 24
SQUARES = 25  # per image


def write_red_squares(folder: Path, train: int, val: int) -> Path:
    """Write the dataset; squares lie in a grid of 50 pixels that tiles cut anywhere."""
    for split, count in (("train", train), ("val", val)):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)
        for number in range(count):
            rng = np.random.default_rng([count, number])
            pixels = np.full((HEIGHT, WIDTH, 3), 128, np.uint8)
            rows = []
            for cell in rng.permutation((WIDTH // 50) * (HEIGHT // 50))[:SQUARES].tolist():
                left, top = (
                    cell % (WIDTH // 50) * 50 + rng.integers(20),
                    cell // (WIDTH // 50) * 50 + rng.integers(20),
                )
                pixels[top : top + SIDE, left : left + SIDE] = (255, 0, 0)
                center = f"{(left + SIDE / 2) / WIDTH:.7f} {(top + SIDE / 2) / HEIGHT:.7f}"
                rows.append(f"0 {center} {SIDE / WIDTH:.7f} {SIDE / HEIGHT:.7f}\n")
            Image.fromarray(pixels).save(folder / "images" / split / f"{number}.png", compress_level=1)
            (folder / "labels" / split / f"{number}.txt").write_text("".join(rows))
    (folder / "data.yaml").write_text("path: .\ntrain: images/train\nval: images/val\nnames: [square]\n")
    return folder / "data.yaml"


def indexed_split(data: Path, name: str) -> IndexedSplit:
    return index_split(read_split(read_dataset(data), name))


class RedSquareDetector(nn.Module):
    """Detects every red square, whole or cut by the border, with high confidence."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> tuple[Tensor]:
        rows = torch.zeros(len(images), 200, 6)
        for number, image in enumerate(images):
            for row, (left, top, right, bottom) in enumerate(_find_squares(image.permute(1, 2, 0).numpy())):
                box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
                rows[number, row] = torch.tensor([*box, 0.9, 1.0])
        return (rows,)


def _find_squares(pixels: NDArray[np.uint8]) -> list[tuple[int, int, int, int]]:
    red = (pixels[..., 0] > 200) & (pixels[..., 1] < 60)
    squares = []
    while red.any():
        top, left = (int(value) for value in np.argwhere(red)[0])
        bottom = top + int(np.argmin(np.append(red[top:, left], False)))
        right = left + int(np.argmin(np.append(red[top, left:], False)))
        red[top:bottom, left:right] = False
        squares.append((left, top, right, bottom))
    return squares
