"""Keras, run for real. `make test-keras` installs what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oomph.errors import CannotFit, MissingFile, UsageError

pytestmark = [
    pytest.mark.keras,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),  # of TensorFlow and Keras
]
TRAINING = Path(__file__).with_name("keras_training.py")
COLORS = ("blue", "green", "red")


def save_folder(folder: Path, per_class: int, classes: tuple[str, ...] = COLORS) -> Path:
    """Save images of a class per folder, each mostly of the color that names the class."""
    rng = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = rng.integers(0, 100, (30, 40, 3), np.uint8)
            pixels[..., ("red", "green", "blue").index(name)] += 100
            Image.fromarray(pixels).resize((320, 240)).save(folder / name / f"{number:03}.jpg")
    return folder


@pytest.fixture(autouse=True)
def needs_keras() -> None:
    pytest.importorskip("keras")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("images"), 10)


def dataset(*arguments: Any, **options: Any) -> Any:
    from oomph.integrations.keras import ImageFolderDataset

    return ImageFolderDataset(*arguments, **options)


def colors_of(images: Any) -> list[int]:
    """Return the class of each image by its strongest channel."""
    channels = np.asarray(images).mean((1, 2)).argmax(1)
    return [COLORS.index(("red", "green", "blue")[channel]) for channel in channels]


def test_batches_hold_every_image_once_with_its_label(folder: Path) -> None:
    data = dataset(folder, (32, 48), 8)
    assert (data.class_names, len(data)) == (COLORS, 4)
    batches = [data[number] for number in range(len(data))]
    assert [images.shape for images, _ in batches] == [(8, 32, 48, 3)] * 3 + [(6, 32, 48, 3)]
    for images, labels in batches:
        assert (images.dtype, labels.dtype) == (np.float32, np.int32)
        assert 0 <= images.min() < 50
        assert 150 < images.max() <= 255
        assert colors_of(images) == labels.tolist()
    assert np.bincount(np.concatenate([labels for _, labels in batches])).tolist() == [10, 10, 10]
    with pytest.raises(IndexError):
        data[4]


def test_the_order_depends_on_seed_and_epoch_alone(folder: Path) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        data = dataset(folder, (32, 32), 8, seed=seed)
        for _ in range(epoch):
            data.on_epoch_end()
        return [data[number][1].tolist() for number in range(len(data))]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)
    data = dataset(folder, (32, 32), 30, shuffle=False)
    assert data[0][1].tolist() == [0] * 10 + [1] * 10 + [2] * 10


def test_labels_and_pixels_come_as_the_model_needs_them(folder: Path) -> None:
    images, labels = dataset(folder, (32, 32), 30, shuffle=False, label_mode="categorical", value_range=(-1, 1))[0]
    assert labels.sum(0).tolist() == [10, 10, 10]
    assert -1 <= images.min() < -0.5
    assert 0.2 < images.max() <= 1
    plain, _ = dataset(folder, (32, 32), 30, shuffle=False)[0]
    assert np.allclose(images, plain / 127.5 - 1, atol=1e-5)
    _, labels = dataset(folder, (32, 32), 20, shuffle=False, label_mode="binary", class_names=["red", "blue"])[0]
    assert (labels.shape, labels.dtype, labels.sum()) == ((20, 1), np.float32, 10)
    (padded, *_), _ = dataset(folder, (32, 32), 1, pad_to_aspect_ratio=True)[0]
    assert (padded[:3] == 114).all()  # 320×240 leaves four rows of gray


def test_broken_images_are_listed_and_batches_keep_their_size(tmp_path: Path) -> None:
    save_folder(tmp_path, 4)
    damaged, text = tmp_path / "red/001.png", tmp_path / "red/002.jpg"
    Image.open(tmp_path / "red/001.jpg").save(damaged)
    content = bytearray(damaged.read_bytes())
    content[45:60] = bytes(15)  # behind the header, which is intact
    damaged.write_bytes(content)
    text.write_text("not an image")
    data = dataset(tmp_path, (32, 32), 4, shuffle=False)
    assert len(data) == 3  # 12 images: the text is not counted
    for number, size in enumerate((4, 4, 4)):
        images, labels = data[number]
        assert len(images) == len(labels) == size
        assert colors_of(images) == labels.tolist()
    assert {Path(item.path) for item in data.skipped()} == {damaged, text}


def test_keras_trains_and_evaluates_with_it(folder: Path) -> None:
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    train, val = dataset(folder, (32, 32), 8), dataset(folder, (32, 32), 8, shuffle=False)
    history = model.fit(train, validation_data=val, epochs=8, verbose=0).history
    assert history["val_accuracy"][-1] > 0.9
    assert model.evaluate(val, verbose=0)[1] == pytest.approx(history["val_accuracy"][-1])
    assert colors_of(np.concatenate([val[number][0] for number in range(len(val))])) == [
        *model.predict(val, verbose=0).argmax(1)
    ]
    assert train.epoch >= 8


def test_the_example_trains_a_model(tmp_path: Path) -> None:
    import keras

    script = Path(__file__).parents[2] / "examples/keras/train.py"
    process = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    model = keras.models.load_model(tmp_path / "model.keras")
    images, labels = dataset(tmp_path / "stripes/val", (64, 64), 200)[0]
    assert np.mean(model.predict(images, verbose=0).argmax(1) == labels) > 0.9


def test_the_backend_of_torch_works_without_tensorflow(folder: Path) -> None:
    code = (
        "import sys, keras; from oomph.integrations.keras import ImageFolderDataset\n"
        "layers = [keras.Input((32, 32, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)]\n"
        "model = keras.Sequential(layers)\n"
        "model.compile('sgd', keras.losses.SparseCategoricalCrossentropy(from_logits=True))\n"
        f"model.fit(ImageFolderDataset({str(folder)!r}, (32, 32), 8), verbose=0)\n"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "KERAS_BACKEND": "torch"}, check=True)


def test_training_stays_below_a_limit_that_kills_the_hand_written_generator(tmp_path: Path) -> None:
    save_folder(tmp_path / "warm-up", 8, ("blue", "red"))
    save_folder(tmp_path / "train", 200, ("blue", "red"))  # 230 MiB as float32

    def train(kind: str, limit_mib: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(TRAINING), kind, str(tmp_path), str(limit_mib)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    killed = train("hand-written", 120)
    assert killed.returncode != 0
    assert "Unable to allocate" in killed.stderr
    streamed = train("oomph", 120)
    assert streamed.returncode == 0, streamed.stderr
    result = json.loads(streamed.stdout)
    assert result["growth"] < 64 * 1024**2
    assert result["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"label_mode": "float"}, UsageError, "label_mode='float' is not supported; use one of int, categorical"),
        ({"label_mode": "binary"}, UsageError, "there are 3 classes and label_mode is 'binary'"),
        ({"workers": 1}, UsageError, "workers=1 is too small; use 2 or more"),
        ({"batch_size": 0}, UsageError, "hold no pixels"),
        ({"budget": "1MiB"}, CannotFit, "the smallest queue needs"),
        ({"budget": "lots"}, UsageError, "'lots' is not a size"),
        ({"class_names": ["red", "pink"]}, MissingFile, "there is no folder 'pink' in"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    folder: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dataset(folder, **{"image_size": (64, 64), "batch_size": 8, **options})
