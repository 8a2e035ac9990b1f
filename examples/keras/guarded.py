"""Trains a small Keras model on torch with guarded steps, on generated images."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np

import oomph
from oomph.integrations.keras import guarded


def main() -> None:
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 512)
    images = rng.uniform(0, 0.5, (512, 32, 32, 3)).astype("float32")
    images[np.arange(512), :, :, labels] += 0.5  # the class is the strongest color
    model = keras.Sequential(
        [
            keras.layers.Input((32, 32, 3)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    # As if no more than 16 images fitted into memory.
    with guarded(model, record="run.jsonl", checkpoint="emergency.keras", guard_options={"micro_batch": 16}):
        model.fit(images, labels, batch_size=64, epochs=3, verbose=2)
    steps = oomph.Record.load("run.jsonl").steps
    print(f"{len(steps)} batches of 64 in {steps[-1]['micro_batches']} micro-batches each")


if __name__ == "__main__":
    main()
