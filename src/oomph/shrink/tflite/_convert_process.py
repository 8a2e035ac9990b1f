"""The process that converts a Keras model: `python -m oomph.shrink.tflite._convert_process TASK ANSWER`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.lite.python import schema_py_generated as schema

from ...data import BatchReader, ClassFolder, StretchedSamples, to_value_range
from ...errors import OomphError, UsageError, describe
from ...units import MIB
from ._process import answer_task
from ._tasks import ConvertedModel, ConvertTask

_CALIBRATION_IMAGES = 128
_BUDGET = 512 * MIB  # of decoding calibration images
_IMAGE_RANK, _CHANNELS, _CLASS_RANK = 4, 3, 2
_FLOATS = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)


def convert(task: ConvertTask) -> ConvertedModel:
    """Write the fp32 file and the smaller file.

    Raises:
        UsageError: Keras rejects the model, it isn't a classifier of the images, or there is nothing to calibrate with.
        OomphError: TensorFlow can't convert it.
    """
    model = load_model(task.weights)
    size = _image_size(model, task)
    _check_outputs(model, task)
    calibration = _calibration_images(task, size) if task.precision == "int8" else None
    # A batch of one and a fixed size: mobile runtimes plan their memory by it.
    inputs = keras.Input(batch_shape=(1, *size, _CHANNELS))
    fixed = keras.Model(inputs, model(inputs, training=False))
    fp32, smaller = (_convert(fixed, task, name, calibration) for name in ("fp32", task.precision))
    parameters = (int(model.count_params()), _count_parameters(fp32), _count_parameters(smaller))
    return ConvertedModel(size, _threshold(model), parameters, 0 if calibration is None else len(calibration))


def load_model(weights: str) -> Any:
    """Load a model without executing code of the file.

    Raises:
        UsageError: Keras rejects it.
    """
    try:
        return keras.models.load_model(weights, compile=False, safe_mode=True)
    except Exception as error:  # noqa: BLE001  Keras has no type of its own for this
        text = str(error)
        if "Lambda" in text:
            raise UsageError(
                f"'{weights}' has a Lambda layer, whose code is not executed",
                "replace it by a layer of Keras, such as Rescaling",
            ) from None
        custom = re.search(r"Could not locate class '(\w+)'", text)
        why = f"the class {custom[1]} is not part of Keras" if custom else describe(error)
        raise UsageError(
            f"Keras can't load '{weights}' ({why})", "save a model of Keras's own layers by model.save('name.keras')"
        ) from None


def _image_size(model: Any, task: ConvertTask) -> tuple[int, int]:
    shape = model.input_shape
    if isinstance(shape, list) or len(shape) != _IMAGE_RANK or shape[-1] != _CHANNELS:
        raise UsageError(
            f"the input of '{task.weights}' has the shape {shape}", "pass a model of one image (height, width, 3)"
        )
    height, width = (side or task.imgsz for side in shape[1:3])
    if height is None or width is None:
        raise UsageError(f"'{task.weights}' accepts images of any size", "set the size by --img")
    if task.imgsz is not None and (height, width) != (task.imgsz, task.imgsz):
        raise UsageError(
            f"'{task.weights}' needs images of {height}×{width} pixels, and --img is {task.imgsz}", "omit --img"
        )
    return height, width


def _check_outputs(model: Any, task: ConvertTask) -> None:
    shape, classes = model.output_shape, len(task.names)
    if isinstance(shape, (list, dict)) or len(shape) != _CLASS_RANK:
        raise UsageError(f"the outputs of '{task.weights}' have the shape {shape}", "pass a classifier")
    allowed = {classes, 1} if classes == 2 else {classes}  # noqa: PLR2004  one output suffices for two classes
    if shape[-1] not in allowed:
        raise UsageError(
            f"'{task.weights}' has {shape[-1]} outputs and '{task.train}' has {classes} folders of classes",
            "use the data that the model was trained on",
        )


def _threshold(model: Any) -> float | None:
    if model.output_shape[-1] != 1:
        return None
    activation = getattr(model.layers[-1], "activation", None)
    return 0.5 if getattr(activation, "__name__", "") == "sigmoid" else 0.0


def _calibration_images(task: ConvertTask, size: tuple[int, int]) -> NDArray[np.uint8]:
    index = ClassFolder.open(task.train, task.names).index
    usable = index.usable
    if not len(usable):
        raise _no_calibration(task, index.skipped()[0].reason)
    numbers = np.linspace(0, len(usable) - 1, min(_CALIBRATION_IMAGES, len(usable))).round().astype(np.int64)
    reader = BatchReader(index.select(usable[numbers]), size, 1, _BUDGET, builder=StretchedSamples(), replace=False)
    images = np.concatenate([reader.read(0, number).images for number in range(len(reader))])
    if not len(images):
        raise _no_calibration(task, reader.skipped()[0].reason)
    return images


def _no_calibration(task: ConvertTask, reason: str) -> UsageError:
    return UsageError(
        f"there are no images to calibrate with: none in '{task.train}' can be used ({reason})",
        "check the images, or use --precision dynamic",
    )


def _convert(model: Any, task: ConvertTask, precision: str, calibration: NDArray[np.uint8] | None) -> Path:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if precision != "fp32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if precision == "int8" and calibration is not None:

        def inputs() -> Iterator[list[NDArray[np.float32]]]:
            for image in calibration:
                yield [to_value_range(image[None], task.value_range)]

        converter.representative_dataset = inputs
        # Without a fallback to float, for hardware that has none.
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    try:
        content = converter.convert()
    except Exception as error:
        raise OomphError(
            f"TensorFlow can't convert '{task.weights}' to {precision} ({describe(error)})",
            "try another --precision, or replace the layer" if precision != "fp32" else "replace the layer",
        ) from error
    path = Path(task.folder) / f"{precision}.tflite"
    path.write_bytes(content)
    return path


def _count_parameters(file: Path) -> int:
    """Count weights and biases: constants that are float or quantized, but not the shapes of reshaping layers."""
    model = schema.ModelT.InitFromPackedBuf(file.read_bytes(), 0)

    def is_weight(tensor: Any) -> bool:
        data = model.buffers[tensor.buffer].data
        is_quantized = tensor.quantization is not None and tensor.quantization.scale is not None
        return data is not None and len(data) > 0 and (tensor.type in _FLOATS or is_quantized)

    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors if is_weight(tensor)]
    return sum(math.prod(int(side) for side in tensor.shape) for tensor in tensors if len(tensor.shape))


def _work(task: dict[str, Any]) -> dict[str, Any]:
    return asdict(convert(ConvertTask(**task)))


if __name__ == "__main__":
    answer_task(_work)
