from __future__ import annotations

import numpy as np
import torch

from oomph.detect import image_grid
from oomph.detect.dataset import gray_canvas
from oomph.detect.plots import training_grid
from oomph.detect.plots._grids import with_caption


def test_images_are_arranged_in_a_grid() -> None:
    red, green = np.full((50, 50, 3), (255, 0, 0), np.uint8), np.full((20, 80, 3), (0, 255, 0), np.uint8)
    grid = image_grid([red, green, red], cell=64)
    assert grid.shape == (128, 128, 3)
    assert tuple(grid[32, 32]) == (255, 0, 0)
    assert tuple(grid[32, 96]) == (0, 255, 0)
    assert tuple(grid[5, 96]) == (114, 114, 114)
    assert image_grid([]).shape == (320, 320, 3)
    assert image_grid([gray_canvas(10, 20)] * 8, cell=32, cell_aspect=2).shape == (128, 128, 3)


def test_a_caption_is_added_above_the_image() -> None:
    image = gray_canvas(40, 200)
    assert (with_caption(image, "text")[-40:] == image).all()


def test_training_grid_shows_the_first_samples_with_boxes() -> None:
    images = torch.full((12, 3, 64, 64), 50, dtype=torch.uint8)
    grid = training_grid(images, torch.tensor([[1, 0, 0.5, 0.5, 0.5, 0.5]]), ["a"])
    assert grid.shape == (960, 960, 3)
    first, second = grid[:320, :320], grid[:320, 320:640]
    assert (first == 50).all()
    assert not (second == 50).all()
