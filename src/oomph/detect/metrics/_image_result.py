"""Predictions and labels of an image, and the file that stores them.

The file allows predictions of one machine to be scored on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingFile, UsageError
from ...files import write_atomically

_PREDICTION_COLUMNS, _TRUTH_COLUMNS = 6, 5


@dataclass(frozen=True)
class ImageResult:
    """Predictions and labels of an image, in pixels of the original image.

    Attributes:
        predictions: (n, 6): left, top, right, bottom, confidence, class.
        truth: (m, 5): class, left, top, right, bottom.
    """

    predictions: NDArray[np.float32]
    truth: NDArray[np.float32]


def write_results(path: Path, results: Sequence[ImageResult], names: Sequence[str]) -> None:
    """Write results and class names to an .npz file, atomically.

    Raises:
        OSError: the file can't be written; a previous one is untouched.
    """
    predictions = [result.predictions for result in results] or [np.zeros((0, _PREDICTION_COLUMNS), np.float32)]
    truth = [result.truth for result in results] or [np.zeros((0, _TRUTH_COLUMNS), np.float32)]
    arrays: dict[str, Any] = {
        "predictions": np.concatenate(predictions),
        "truth": np.concatenate(truth),
        "prediction_counts": np.array([len(result.predictions) for result in results], dtype=np.int64),
        "truth_counts": np.array([len(result.truth) for result in results], dtype=np.int64),
        "names": np.array(list(names), dtype=np.str_),
    }
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))


def read_results(path: Path) -> tuple[list[ImageResult], tuple[str, ...]]:
    """Read results and class names from a file of `write_results`.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't such a file.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            counts = arrays["prediction_counts"]
            predictions = np.split(arrays["predictions"], np.cumsum(counts)[:-1])
            truth = np.split(arrays["truth"], np.cumsum(arrays["truth_counts"])[:-1])
            names = tuple(str(name) for name in arrays["names"])
    except FileNotFoundError:
        raise MissingFile(f"there is no file '{path}'", "check the path") from None
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UsageError(f"{path} contains no predictions ({error})", "pass a file that oomph wrote") from None
    pairs = zip(predictions, truth, strict=True) if len(counts) else ()
    return [ImageResult(boxes, labels) for boxes, labels in pairs], names
