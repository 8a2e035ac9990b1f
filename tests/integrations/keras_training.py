"""Trains a Keras model under a limit of memory: `keras_training.py oomph|hand-written FOLDER MIB`.

The limit (RLIMIT_DATA) starts after a first epoch on a few images, so that it covers what the data adds and not what
the framework needs. Prints the growth of the peak RSS and the accuracy as JSON.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from PIL import Image

from oomph.integrations.keras import ImageFolderDataset

SIZE, BATCH = (224, 224), 8
MIB = 1024**2


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def hand_written(folder: Path) -> Any:
    """The generator from a thousand tutorials: all images in two arrays, batches as slices of them."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    files = [(path, names.index(name)) for name in names for path in sorted((folder / name).iterdir())]
    images = np.array([np.asarray(Image.open(path).resize(SIZE), np.float32) for path, _ in files])
    labels = np.array([label for _, label in files])

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return math.ceil(len(images) / BATCH)

        def __getitem__(self, number: int) -> Any:
            part = slice(number * BATCH, (number + 1) * BATCH)
            return images[part], labels[part]

    return Batches()


def build_model() -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((*SIZE, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 7, strides=4, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    kind, folder, limit = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) * MIB
    keras.utils.set_random_seed(0)
    model = build_model()
    model.fit(ImageFolderDataset(folder / "warm-up", SIZE, BATCH, budget="64MiB", workers=2), verbose=0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak RSS starts again
    before = status("VmHWM")
    ceiling = status("VmData") + limit
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, ceiling))
    train = folder / "train"
    data = (
        hand_written(train)
        if kind == "hand-written"
        else ImageFolderDataset(train, SIZE, BATCH, budget="64MiB", workers=2)
    )
    history = model.fit(data, epochs=2, verbose=0).history
    print(json.dumps({"growth": status("VmHWM") - before, "accuracy": history["accuracy"][-1]}))


if __name__ == "__main__":
    main()
