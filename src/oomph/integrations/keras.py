"""Keras: images within a budget of bytes, and training steps that are repeated with less memory.

    from oomph.integrations.keras import ImageFolderDataset, guarded

    train = ImageFolderDataset("data/train", image_size=(224, 224), batch_size=32, budget="512MiB")
    with guarded(model, record="run.jsonl"):
        model.fit(train, epochs=10)

`ImageFolderDataset`, a PyDataset that streams a folder of images, works with every backend of Keras; `guarded` needs
torch. Both need Keras 3. Importing this file imports Keras.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data import (
    BatchReader,
    ClassFolder,
    LetterboxSamples,
    SkippedImage,
    StretchedSamples,
    to_value_range,
    usable_cores,
)
from ..errors import UsageError, quote
from ..units import parse_size
from ._batch_queue import divide_budget
from ._versions import check_version

if TYPE_CHECKING:
    from ..adapters import FrameworkJob
    from ._keras_guard import KerasGuard

try:
    import keras
except ModuleNotFoundError as missing:
    raise UsageError(f"the package {missing.name} isn't installed", "run `pip install 'oomph[keras]'`") from None

check_version("keras", keras.__version__, "3.0")

__all__ = ["ImageFolderDataset", "describe", "guarded"]

_LABEL_MODES = ("int", "categorical", "binary")
_MIN_WORKERS, _MAX_WORKERS = 2, 8
_BINARY = 2  # classes


class ImageFolderDataset(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches of a folder with one subfolder per class, decoded when Keras requests them.

    A batch is a tuple of images, float32 (samples, height, width, 3), and labels. The arguments are named like those
    of `keras.utils.image_dataset_from_directory`.

    Several threads of Keras make batches ahead. Decoding and all batches that wait in Keras's queue stay within the
    budget; the copy that the backend trains on is not part of it. Decoders release the GIL, so threads suffice:
    `use_multiprocessing` is not supported.

    The batches of an epoch depend only on the seed and the number of the epoch. `fit()` shuffles the order of the
    batches by Python's `random` unless it is called with `shuffle=False`.

    An image that can't be decoded is replaced by the next one of the epoch, so that the number and the sizes of the
    batches don't change; `skipped()` lists it.

    Args:
        folder: the folder with a subfolder per class.
        image_size: height and width.
        batch_size: images per batch; the last batch of an epoch may be smaller.
        budget: bytes, or a size such as "512MiB".
        shuffle: use a new order every epoch.
        seed: seed of the order.
        class_names: the classes in the order of their numbers; all subfolders in alphabetical order by default.
        label_mode: "int" for sparse losses, "categorical" for one-hot labels, "binary" for two classes and one output.
        pad_to_aspect_ratio: letterbox images on gray, instead of stretching them to the size.
        value_range: values of black and white: (0, 255), as for a model with a Rescaling layer, (0, 1) or (-1, 1).
        workers: threads of Keras, at least 2: with one, TensorFlow makes batches ahead without a limit.

    Attributes:
        class_names: names of the classes.
        memory: how the budget is divided.
        epoch: number of the current epoch; set it to continue a run.

    Raises:
        CannotFit: the smallest queue of batches exceeds the budget.
        UsageError: an argument is invalid, or there are no images.
    """

    def __init__(  # noqa: PLR0913  the arguments of image_dataset_from_directory
        self,
        folder: str | os.PathLike[str],
        image_size: tuple[int, int] = (256, 256),
        batch_size: int = 32,
        *,
        budget: int | str = "512MiB",
        shuffle: bool = True,
        seed: int = 0,
        class_names: Sequence[str] | None = None,
        label_mode: str = "int",
        pad_to_aspect_ratio: bool = False,
        value_range: tuple[float, float] = (0, 255),
        workers: int | None = None,
    ) -> None:
        images = ClassFolder.open(folder, class_names)
        _check_labels(label_mode, images.names)
        workers = max(_MIN_WORKERS, min(usable_cores(), _MAX_WORKERS)) if workers is None else workers
        _check_numbers(image_size, batch_size, workers)
        pixels = batch_size * image_size[0] * image_size[1] * 3
        self.memory = divide_budget(parse_size(budget), pixels * np.dtype(np.float32).itemsize, pixels, workers)
        super().__init__(workers=workers, max_queue_size=self.memory.queue)
        self.class_names, self.epoch = images.names, 0
        self._classes, self._label_mode, self._value_range = images.classes, label_mode, value_range
        builder = LetterboxSamples() if pad_to_aspect_ratio else StretchedSamples()
        self._reader = BatchReader(
            images.index,
            image_size,
            batch_size,
            self.memory.decoding,
            builder=builder,
            shuffle=shuffle,
            seed=seed,
            threads=workers,
        )

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
        images, indices = self._reader.read(self.epoch, index)
        return to_value_range(images, self._value_range), self._labels(self._classes[indices])

    def on_epoch_end(self) -> None:
        """Go to the next epoch; Keras calls it."""
        self.epoch += 1

    def skipped(self) -> list[SkippedImage]:
        """Return the files that are not used so far, each with its reason."""
        return self._reader.skipped()

    def _labels(self, classes: NDArray[np.int64]) -> NDArray[np.generic]:
        if self._label_mode == "categorical":
            return np.eye(len(self.class_names), dtype=np.float32)[classes]
        if self._label_mode == "binary":
            return classes.astype(np.float32)[:, None]
        return classes.astype(np.int32)


def guarded(
    model: keras.Model,
    *,
    record: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    budget: int | str | None = None,
    guard_options: Mapping[str, Any] | None = None,
) -> KerasGuard:
    """Guard the training steps of a model on torch against running out of memory, in a `with` statement.

    A batch that doesn't fit is repeated in smaller micro-batches. Metrics, callbacks and updates stay the same.

    Args:
        model: a compiled model; it is trained by `fit()` or `train_on_batch()` as usual.
        record: where to write the Record, for `oomph watch`, `oomph report` and `oomph explain`.
        checkpoint: a name that ends with .keras: where to save when the guard gives up, for
            `keras.models.load_model()`.
        budget: bytes of the device that may be used, or a text such as "8GiB"; on the CPU, of this process.
        guard_options: further options of `oomph.guard`: inexact, split, samples, micro_batch, cooldown_steps,
            snapshot, nvtx.

    Raises:
        UsageError: the backend is not torch, or the model can't be guarded.
    """
    _require_torch()
    from ._keras_guard import KerasGuard  # noqa: PLC0415  it imports torch, which other backends don't need

    return KerasGuard(model, record, checkpoint, budget, dict(guard_options or {}))


def describe(model: Any) -> FrameworkJob:
    """Return what a model trains, and how, for `oomph.predict(model)` and `oomph.plan(model)`.

    Raises:
        UsageError: the backend is not torch, or the model can't be predicted.
    """
    _require_torch()
    from ._keras_job import job_of_model  # noqa: PLC0415  the same

    return job_of_model(model)


def _require_torch() -> None:
    if keras.backend.backend() != "torch":
        raise UsageError(
            f"the backend of Keras is {keras.backend.backend()}, and only torch can be guarded or predicted",
            "set the environment variable KERAS_BACKEND=torch",
        )


def _check_labels(label_mode: str, names: tuple[str, ...]) -> None:
    if label_mode not in _LABEL_MODES:
        raise UsageError(f"label_mode={quote(label_mode)} is not supported", f"use one of {', '.join(_LABEL_MODES)}")
    if label_mode == "binary" and len(names) != _BINARY:
        raise UsageError(f"there are {len(names)} classes and label_mode is 'binary'", "use 'int' or 'categorical'")


def _check_numbers(image_size: tuple[int, int], batch_size: int, workers: int) -> None:
    if min(*image_size, batch_size) < 1:
        raise UsageError(f"image_size={image_size} and batch_size={batch_size} hold no pixels", "use 1 or more of each")
    if workers < _MIN_WORKERS:
        raise UsageError(f"workers={workers} is too small", f"use {_MIN_WORKERS} or more, or omit it")
