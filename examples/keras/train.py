"""Train a Keras classifier on a folder of images, which are decoded while it trains, within 64 MiB."""

from pathlib import Path

import keras
import numpy as np
from PIL import Image

from oomph.integrations.keras import ImageFolderDataset

FOLDER, SIDE = Path("stripes"), 64
DIRECTIONS = {"diagonal": (0.7, 0.7), "falling": (0.7, -0.7), "horizontal": (0, 1), "vertical": (1, 0)}


def write_images(folder: Path, per_class: int, seed: int) -> None:
    """Write noisy stripes, a folder per direction."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for name, (x, y) in DIRECTIONS.items():
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            wave = np.sin((columns * x + rows * y) * rng.uniform(0.3, 0.9) + rng.uniform(0, 6))
            color = rng.uniform(20, 60) * rng.uniform(0.3, 1, 3)
            pixels = rng.uniform(90, 160, 3) + wave[..., None] * color + rng.normal(0, 60, (SIDE, SIDE, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{number:04}.jpg")


def build_model(classes: int) -> keras.Model:
    layers = keras.layers
    model = keras.Sequential([keras.Input((SIDE, SIDE, 3)), layers.Rescaling(1 / 255)])
    for width in (16, 32, 64, 128):
        model.add(layers.Conv2D(width, 3, padding="same", use_bias=False))
        model.add(layers.BatchNormalization(momentum=0.9))
        model.add(layers.ReLU())
        model.add(layers.MaxPooling2D())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(classes, activation="softmax"))
    model.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    keras.utils.set_random_seed(0)
    if not FOLDER.exists():
        write_images(FOLDER / "train", 250, seed=0)
        write_images(FOLDER / "val", 250, seed=1)
    train = ImageFolderDataset(FOLDER / "train", (SIDE, SIDE), 32, budget="64MiB")
    val = ImageFolderDataset(
        FOLDER / "val", (SIDE, SIDE), 32, budget="64MiB", shuffle=False, class_names=train.class_names
    )
    model = build_model(len(train.class_names))
    model.fit(train, validation_data=val, epochs=8, verbose=2, shuffle=False)
    model.save("model.keras")


if __name__ == "__main__":
    main()
