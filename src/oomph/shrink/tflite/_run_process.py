"""The process that runs a file: `python -m oomph.shrink.tflite._run_process TASK ANSWER`.

It imports what running the file needs and nothing else: for a .tflite file no TensorFlow. Decoders are imported after
memory was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import OomphError, describe
from ...machine import peak_rss_bytes
from ...units import MIB
from ._process import answer_task
from ._tasks import RunTask

_Floats = NDArray[np.float32]
_Network = Callable[[_Floats], _Floats]  # an image (1, height, width, 3) to outputs (classes)
_BUDGET = 512 * MIB  # of decoding


def measure(task: RunTask) -> dict[str, Any]:
    """Return the seconds of each run and the peak RSS, and write the outputs of all images.

    Raises:
        OomphError: the file can't be run.
    """
    try:
        run = _open_tflite(task) if task.file.endswith(".tflite") else _open_keras(task)
        inputs = np.load(task.inputs, mmap_mode="r")
        seconds = []
        for number in range(task.warmup + task.runs):
            image = np.array(inputs[number % len(inputs)][None])
            start = time.perf_counter()
            run(image)
            seconds.append(time.perf_counter() - start)
        memory = peak_rss_bytes()
        _write_outputs(task, run)
    except (RuntimeError, ValueError) as error:
        raise OomphError(
            f"'{task.file}' can't be run ({describe(error)})", "convert it again, and report this"
        ) from None
    return {"seconds": seconds[task.warmup :], "memory": memory}


def _write_outputs(task: RunTask, run: _Network) -> None:
    from ...data import BatchReader, ClassFolder, StretchedSamples, to_value_range  # noqa: PLC0415

    index = ClassFolder.open(task.folder, task.names).index
    reader = BatchReader(index, task.size, 1, _BUDGET, builder=StretchedSamples(), replace=False)
    outputs: list[_Floats] = []
    indices: list[int] = []
    for number in range(len(reader)):
        batch = reader.read(0, number)
        if len(batch.indices):
            outputs.append(run(to_value_range(batch.images, task.value_range)))
            indices.append(int(batch.indices[0]))
    np.savez(task.outputs, outputs=np.array(outputs, np.float32), indices=np.array(indices, np.int64))


def _open_tflite(task: RunTask) -> _Network:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415  an extra

    interpreter = Interpreter(task.file, num_threads=task.threads)
    interpreter.allocate_tensors()
    source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def run(image: _Floats) -> _Floats:
        interpreter.set_tensor(source["index"], quantize(image, source))
        interpreter.invoke()
        return dequantize(interpreter.get_tensor(target["index"])[0], target)

    return run


def quantize(values: _Floats, tensor: dict[str, Any]) -> NDArray[Any]:
    """Return values as a tensor of a .tflite file holds them."""
    if tensor["dtype"] == np.float32:
        return values
    scale, zero = tensor["quantization"]
    limits = np.iinfo(tensor["dtype"])
    quantized: NDArray[Any] = np.clip(np.round(values / scale) + zero, limits.min, limits.max)
    return quantized.astype(tensor["dtype"])


def dequantize(values: NDArray[Any], tensor: dict[str, Any]) -> _Floats:
    """Return the floats that a tensor of a .tflite file stands for."""
    if tensor["dtype"] == np.float32:
        return values.astype(np.float32)
    scale, zero = tensor["quantization"]
    floats: _Floats = (values.astype(np.float32) - np.float32(zero)) * np.float32(scale)
    return floats


def _open_keras(task: RunTask) -> _Network:
    import keras  # noqa: PLC0415  an extra
    import tensorflow as tf  # noqa: PLC0415

    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    model = keras.models.load_model(task.file, compile=False, safe_mode=True)
    call = tf.function(lambda image: model(image, training=False), reduce_retracing=True)

    def run(image: _Floats) -> _Floats:
        outputs: _Floats = call(tf.constant(image)).numpy()[0]
        return outputs

    return run


def _work(task: dict[str, Any]) -> dict[str, Any]:
    return measure(RunTask(**task))


if __name__ == "__main__":
    answer_task(_work)
