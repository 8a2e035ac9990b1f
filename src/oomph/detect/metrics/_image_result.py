"""What was found and what is there, image by image: from the network's view to the original's, and to a file and back.

A file lets detections that were made on one machine be scored on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ...data import Letterbox
from ...errors import MissingFile, UsageError
from ...files import write_atomically
from ..dataset._augmentation import Labels, to_pixels
from ._scores import ImageResult

_FOUND, _TRUTH = 6, 5


def image_result(found: Tensor, spot: Letterbox, labels: Labels) -> ImageResult:
    """Boxes that `suppress` found in a letterboxed image, and its labels as fractions, in pixels of the original."""
    boxes = found.detach().float().cpu()
    wide, high = spot.window.size
    corners = spot.to_image(boxes[:, :4].numpy()).clip(0, (wide, high, wide, high))
    rows = np.concatenate((corners, boxes[:, 4:].numpy()), 1).astype(np.float32)
    return ImageResult(rows, to_pixels(labels, (float(wide), float(high)), (0.0, 0.0)))


def write_results(path: Path, results: Sequence[ImageResult], names: Sequence[str]) -> None:
    """Write results and the names of the classes into one file of plain arrays."""
    found = [result.found for result in results] or [np.zeros((0, _FOUND), np.float32)]
    truth = [result.truth for result in results] or [np.zeros((0, _TRUTH), np.float32)]
    arrays: dict[str, Any] = {
        "found": np.concatenate(found),
        "truth": np.concatenate(truth),
        "found_counts": np.array([len(result.found) for result in results], dtype=np.int64),
        "truth_counts": np.array([len(result.truth) for result in results], dtype=np.int64),
        "names": np.array(list(names), dtype=np.str_),
    }
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))


def read_results(path: Path) -> tuple[list[ImageResult], tuple[str, ...]]:
    """Results and names that `write_results` wrote.

    Raises:
        MissingFile: there is no such file.
        UsageError: it is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = np.split(arrays["found"], np.cumsum(arrays["found_counts"])[:-1])
            truth = np.split(arrays["truth"], np.cumsum(arrays["truth_counts"])[:-1])
            names = tuple(str(name) for name in arrays["names"])
            count = len(arrays["found_counts"])
    except FileNotFoundError:
        raise MissingFile(f"there is no file '{path}'", "check the path") from None
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UsageError(f"{path} holds no detections ({error})", "name a file that oomph wrote") from None
    pairs = zip(found, truth, strict=True) if count else ()
    return [ImageResult(one, other) for one, other in pairs], names
