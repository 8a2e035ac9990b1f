"""Static int8 quantization of a LiteRT file, by AI Edge Quantizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...detect import HeadOutputs, append_litert_metadata
from ._export import Quantization
from ._network import build_network, layer_name, metadata_of
from ._quiet import quiet

_SIGNATURE = "serving_default"
# Names of tensors are paths of modules: the head's convolutions are called by the outermost module.
_HEAD = r"HeadOutputs/torch\.nn\.modules\.conv\.Conv2d_"
_OUTPUTS = "serving_default_output"


def quantize_litert(task: Quantization) -> tuple[str, ...]:
    """Write an int8 LiteRT file; return the layers that stay in float.

    Activations are int8 with one scale per tensor, weights int8 with one scale per channel. Inputs and outputs are
    fp32, as in the fp32 file.
    """
    with quiet():
        from ai_edge_quantizer import algorithm_manager, qtyping, quantizer, recipe  # noqa: PLC0415  an extra

        operation, skip = qtyping.TFLOperationName, algorithm_manager.AlgorithmName.NO_QUANTIZE
        job = quantizer.Quantizer(str(task.exported))
        job.load_quantization_recipe(recipe.static_wi8_ai8())
        for names, kind in (
            (".*", operation.INPUT),
            (".*", operation.OUTPUT),
            (_OUTPUTS, operation.TRANSPOSE),
            (_HEAD, operation.CONV_2D),  # a scale for both boxes and scores would ruin the scores
        ):
            job.update_quantization_recipe(names, kind, algorithm_key=skip)
        inputs = [{"images": image[None].astype(np.float32) / 255} for image in task.images]
        job.quantize(job.calibrate({_SIGNATURE: inputs})).export_model(str(task.path), overwrite=True)
        layers = _float_convolutions(task.path, build_network(task.weights))
    append_litert_metadata(task.path, metadata_of(task.weights, task.imgsz, "int8").encode())
    return layers


def _float_convolutions(path: Path, network: HeadOutputs) -> tuple[str, ...]:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415

    interpreter = Interpreter(model_path=str(path))  # its tensors are not allocated: no delegate has replaced a layer
    tensors: dict[int, Any] = {tensor["index"]: tensor for tensor in interpreter.get_tensor_details()}
    operations = interpreter._get_ops_details()  # noqa: SLF001  the only list of layers
    weights = [tensors[item["inputs"][1]] for item in operations if item["op_name"].endswith("CONV_2D")]
    head = next(name for name, module in network.named_modules() if module is network.detector.head)
    return tuple(_layer(weight["name"], layer_name(head)) for weight in weights if weight["dtype"] == np.float32)


def _layer(tensor: str, head: str) -> str:
    """Return a layer's name by the name of its weight, such as "HeadOutputs/Conv_0/Conv2d_conv;1"."""
    _, *modules = tensor.split(";", maxsplit=1)[0].split("/")
    names = [module.rpartition("_")[2] for module in modules]
    return f"{head}.m.{names[0]}" if len(names) == 1 else ".".join(["model", *names])
