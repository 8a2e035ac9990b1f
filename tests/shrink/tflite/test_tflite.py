"""TFLite files, converted and run for real. `make test-keras` installs what they need."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oomph.cli import run
from oomph.errors import MissingFile, OomphError, UsageError
from oomph.shrink import ShrinkResult, TfliteRequest, shrink_tflite

pytestmark = [
    pytest.mark.keras,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),  # of TensorFlow and Keras
]
STRIPES = {"diagonal": (0.7, 0.7), "horizontal": (0.0, 1.0), "vertical": (1.0, 0.0)}
SIDE = 48


def save_stripes(folder: Path, per_class: int, seed: int) -> None:
    """Save images of noisy stripes, a class per direction."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for name, (x, y) in STRIPES.items():
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            wave = np.sin((columns * x + rows * y) * rng.uniform(0.5, 0.9) + rng.uniform(0, 6))
            pixels = 128 + 60 * wave[..., None] + rng.normal(0, 40, (SIDE, SIDE, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{number:03}.png")


def classifier(classes: int, *inner: Any, side: int | None = SIDE, activation: str = "softmax") -> Any:
    import keras

    layers = keras.layers
    body = [
        (layers.Conv2D(width, 3, padding="same", use_bias=False), layers.BatchNormalization(momentum=0.8))
        for width in (16, 32, 64)
    ]
    blocks = [layer for pair in body for layer in (*pair, layers.ReLU(), layers.MaxPooling2D())]
    last = (layers.GlobalAveragePooling2D(), layers.Dense(classes, activation=activation))
    return keras.Sequential([keras.Input((side, side, 3)), *inner, *blocks, *last])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, and a model that was trained on it by the PyDataset."""
    keras = pytest.importorskip("keras")
    from oomph.integrations.keras import ImageFolderDataset

    folder = tmp_path_factory.mktemp("tflite")
    save_stripes(folder / "data/train", 100, 0)
    save_stripes(folder / "data/val", 50, 1)
    keras.utils.set_random_seed(0)
    model = classifier(3, keras.layers.Rescaling(1 / 255))
    model.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy")
    data = ImageFolderDataset(folder / "data/train", (SIDE, SIDE), 20, budget="32MiB")
    model.fit(data, epochs=6, verbose=0, shuffle=False)
    model.save(folder / "model.keras")
    return folder


@pytest.fixture(scope="module")
def int8_result(folder: Path) -> ShrinkResult:
    return shrink_tflite(TfliteRequest(folder / "model.keras", folder / "data", "int8"))


def test_int8_is_a_quarter_of_the_size_and_within_two_points(int8_result: ShrinkResult, folder: Path) -> None:
    before, fp32, int8 = int8_result.variants
    assert [item.name for item in int8_result.variants] == ["Keras fp32", "TFLite fp32", "TFLite int8"]
    assert before.scores["accuracy"] > 0.9
    assert fp32.scores == before.scores
    assert int8.scores["accuracy"] == pytest.approx(before.scores["accuracy"], abs=0.02)
    assert (fp32.file, int8.file) == (None, str(folder / "model-int8.tflite"))
    assert int8.file_bytes == (folder / "model-int8.tflite").stat().st_size < 0.4 * fp32.file_bytes
    assert int8.memory < before.memory / 3
    # BatchNorm is folded into the convolutions: 432 + 4608 + 18432 weights, 16 + 32 + 64 biases, 192 + 3 of the last.
    assert fp32.parameters == int8.parameters == 23_779 < before.parameters
    assert (int8_result.imgsz, int8_result.split) == (SIDE, "val")


def test_differences_are_those_of_all_val_images(int8_result: ShrinkResult) -> None:
    fp32, int8 = int8_result.differences
    assert fp32.images == int8.images == 150
    assert fp32.largest < 1e-4
    assert fp32.mean < int8.mean < 0.05


def test_int8_has_no_floats_and_follows_keras(int8_result: ShrinkResult, folder: Path) -> None:
    import keras
    from ai_edge_litert.interpreter import Interpreter

    from oomph.integrations.keras import ImageFolderDataset

    interpreter = Interpreter(str(folder / "model-int8.tflite"))
    interpreter.allocate_tensors()
    types = {detail["dtype"] for detail in interpreter.get_tensor_details()}
    assert types <= {np.int8, np.int32}
    source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    assert source["shape"].tolist() == [1, SIDE, SIDE, 3]
    images, labels = ImageFolderDataset(folder / "data/val", (SIDE, SIDE), 150, shuffle=False)[0]
    scale, zero = source["quantization"]
    predicted = []
    for image in images:
        interpreter.set_tensor(
            source["index"], np.clip(np.round(image / scale) + zero, -128, 127)[None].astype(np.int8)
        )
        interpreter.invoke()
        predicted.append(int(interpreter.get_tensor(target["index"]).argmax()))
    accuracy = float(np.mean(np.array(predicted) == labels))
    assert accuracy == pytest.approx(int8_result.variants[-1].scores["accuracy"])
    outputs = keras.models.load_model(folder / "model.keras").predict(images, verbose=0)
    assert np.mean(np.array(predicted) == outputs.argmax(1)) > 0.97


@pytest.mark.parametrize(("precision", "size"), [("dynamic", 0.4), ("float16", 0.6)])
def test_other_precisions_are_smaller_and_as_accurate(
    folder: Path, tmp_path: Path, precision: str, size: float
) -> None:
    out = tmp_path / "x.tflite"
    request = TfliteRequest(folder / "model.keras", folder / "data", precision, out=out)
    before, fp32, after = shrink_tflite(request).variants
    assert after.name == f"TFLite {precision}"
    assert out.stat().st_size == after.file_bytes < size * fp32.file_bytes
    assert after.scores["accuracy"] == pytest.approx(before.scores["accuracy"], abs=0.02)


def test_the_command_prints_nothing_but_json(folder: Path, tmp_path: Path) -> None:
    flags = ["--weights", str(folder / "model.keras"), "--data", str(folder / "data"), "--img", str(SIDE)]
    flags += ["--value-range", "-1..1", "--precision", "int8", "--out", str(tmp_path / "x.tflite"), "--json"]
    command = [sys.executable, "-m", "oomph", "shrink", "tflite", *flags]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    document = json.loads(process.stdout)
    assert process.stderr == ""
    assert document["method"] == "tflite"
    # The model has a Rescaling layer and gets values that are too small: no accuracy can be expected.
    assert document["variants"][0]["scores"]["accuracy"] < 0.9


def test_a_model_of_any_size_and_a_single_output(folder: Path, tmp_path: Path) -> None:
    import keras

    keras.utils.set_random_seed(0)
    for split in ("train", "validation"):
        for name in ("horizontal", "vertical"):
            source = folder / "data" / ("train" if split == "train" else "val") / name
            shutil.copytree(source, tmp_path / "data" / split / name)
    model = classifier(1, side=None, activation="sigmoid")
    model.save(tmp_path / "any.keras")
    request = TfliteRequest(tmp_path / "any.keras", tmp_path / "data", "int8", value_range=(0, 1))
    with pytest.raises(UsageError, match=r"any.keras' accepts images of any size; set the size by --img"):
        shrink_tflite(request)
    result = shrink_tflite(TfliteRequest(request.weights, request.data, "int8", 32, (0, 1)))
    assert (result.imgsz, result.split) == (32, "validation")
    assert result.differences[0].largest < 1e-4


def test_broken_val_images_are_left_out(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "data", tmp_path / "data")
    (tmp_path / "data/val/vertical/000.png").write_text("not an image")
    damaged = tmp_path / "data/val/vertical/001.png"
    content = bytearray(damaged.read_bytes())
    content[45:60] = bytes(15)
    damaged.write_bytes(content)
    result = shrink_tflite(TfliteRequest(folder / "model.keras", tmp_path / "data", out=tmp_path / "x.tflite"))
    assert result.differences[0].images == 148


def test_models_that_cannot_be_used_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    import keras

    data = folder / "data"
    junk, empty = tmp_path / "junk.keras", tmp_path / "empty.keras"
    junk.write_bytes(b"x" * 100)
    with zipfile.ZipFile(empty, "w") as file:
        file.writestr("a", "b")
    classifier(3, keras.layers.Lambda(lambda image: image / 255)).save(tmp_path / "lambda.keras")
    classifier(5).save(tmp_path / "five.keras")
    keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)]).save(tmp_path / "table.keras")
    for name, message in {
        "no.keras": "there is no file",
        "junk.keras": "is not a .keras file; save the model by",
        "empty.keras": "Keras can't load",
        "lambda.keras": "has a Lambda layer, whose code is not executed",
        "five.keras": "has 5 outputs and .* has 3 folders of classes",
        "table.keras": r"has the shape \(None, 8\)",
    }.items():
        with pytest.raises(UsageError, match=message) as caught:
            shrink_tflite(TfliteRequest(tmp_path / name, data, "int8"))
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.tflite"))


def test_custom_layers_are_named(folder: Path, tmp_path: Path) -> None:
    code = (
        "import keras\n"
        "class Twice(keras.layers.Layer):\n    def call(self, x): return x * 2\n"
        "keras.Sequential([keras.Input((8, 8, 3)), Twice(), keras.layers.Flatten(), keras.layers.Dense(3)])"
        f".save({str(tmp_path / 'custom.keras')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    with pytest.raises(UsageError, match="the class Twice is not part of Keras"):
        shrink_tflite(TfliteRequest(tmp_path / "custom.keras", folder / "data"))


def test_weights_that_compute_nan_are_not_written(folder: Path, tmp_path: Path) -> None:
    import keras

    model = keras.models.load_model(folder / "model.keras")
    model.layers[-1].set_weights([np.full_like(array, np.nan) for array in model.layers[-1].get_weights()])
    model.save(tmp_path / "nan.keras")
    with pytest.raises(OomphError, match=r"differ from those of .* by up to nan"):
        shrink_tflite(TfliteRequest(tmp_path / "nan.keras", folder / "data"))
    assert not list(tmp_path.glob("*.tflite"))


def test_data_that_does_not_fit_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    weights = folder / "model.keras"
    with pytest.raises(MissingFile, match=r"there is no folder '.*train'"):
        shrink_tflite(TfliteRequest(weights, tmp_path))
    (tmp_path / "train/a").mkdir(parents=True)
    with pytest.raises(UsageError, match="there are no images in the subfolders of"):
        shrink_tflite(TfliteRequest(weights, tmp_path, "int8"))
    save_stripes(tmp_path / "other/train", 1, 0)
    with pytest.raises(MissingFile, match="there is no folder 'val' in"):
        shrink_tflite(TfliteRequest(weights, tmp_path / "other"))
    for file in (tmp_path / "other/train").rglob("*.png"):
        file.write_text("no image")
    (tmp_path / "other/val").symlink_to(folder / "data/val")
    with pytest.raises(UsageError, match="there are no images to calibrate with: none in"):
        shrink_tflite(TfliteRequest(weights, tmp_path / "other", "int8", out=tmp_path / "x.tflite"))
    with pytest.raises(UsageError, match=r"needs images of 48×48 pixels, and --img is 64; omit --img"):
        shrink_tflite(TfliteRequest(weights, folder / "data", imgsz=64))
    with pytest.raises(UsageError, match=r"use a name that ends in .tflite"):
        shrink_tflite(TfliteRequest(weights, folder / "data", out=tmp_path / "x.lite"))


def test_the_measuring_process_imports_no_tensorflow() -> None:
    code = (
        "import sys, oomph.shrink.tflite._run_process;"
        "assert not {'tensorflow', 'keras', 'ai_edge_litert', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_exit_code_of_wrong_input_is_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shrink", "tflite", "--weights", str(folder / "no.keras"), "--data", str(folder / "data")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
