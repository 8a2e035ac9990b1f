"""Smaller models: each method ends in a file that runs and in one table of what it saves and costs.

Names are loaded on first use, so that the processes that are measured import only what they need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._compare import CompareRequest as CompareRequest
    from ._compare import CompareResult as CompareResult
    from ._compare import compare_variants as compare_variants
    from ._measure import measure_variant as measure_variant
    from ._recommendation import Recommendation as Recommendation
    from ._recommendation import VariantLimits as VariantLimits
    from ._recommendation import find_variant_front as find_variant_front
    from ._recommendation import recommend_variant as recommend_variant
    from ._variants import Latency as Latency
    from ._variants import OutputDifference as OutputDifference
    from ._variants import ShrinkResult as ShrinkResult
    from ._variants import TrainingMemory as TrainingMemory
    from ._variants import VariantReport as VariantReport
    from .distillation import distill as distill
    from .distillation import distill_detector as distill_detector
    from .distillation import soft_targets as soft_targets
    from .export import ExportRequest as ExportRequest
    from .export import shrink_executorch as shrink_executorch
    from .export import shrink_litert as shrink_litert
    from .export import shrink_onnx as shrink_onnx
    from .pruning import PRUNE_FILE as PRUNE_FILE
    from .pruning import PrunedModel as PrunedModel
    from .pruning import PruneRequest as PruneRequest
    from .pruning import load_pruned as load_pruned
    from .pruning import prune as prune
    from .pruning import prune_detector as prune_detector
    from .pruning import save_pruned as save_pruned
    from .quantization import QAT_HYPERPARAMETERS as QAT_HYPERPARAMETERS
    from .quantization import QUANTIZE_FILE as QUANTIZE_FILE
    from .quantization import Int8File as Int8File
    from .quantization import PreparedModel as PreparedModel
    from .quantization import QuantizedModel as QuantizedModel
    from .quantization import QuantizeRequest as QuantizeRequest
    from .quantization import finish_qat as finish_qat
    from .quantization import load_quantized as load_quantized
    from .quantization import prepare_qat as prepare_qat
    from .quantization import quantize as quantize
    from .quantization import quantize_detector as quantize_detector
    from .quantization import quantize_to_onnx as quantize_to_onnx
    from .quantization import save_quantized as save_quantized
    from .tflite import TfliteRequest as TfliteRequest
    from .tflite import shrink_tflite as shrink_tflite

_HOME = {
    "CompareRequest": "_compare",
    "CompareResult": "_compare",
    "Int8File": "quantization",
    "ExportRequest": "export",
    "Latency": "_variants",
    "OutputDifference": "_variants",
    "PreparedModel": "quantization",
    "PRUNE_FILE": "pruning",
    "PruneRequest": "pruning",
    "PrunedModel": "pruning",
    "QAT_HYPERPARAMETERS": "quantization",
    "QUANTIZE_FILE": "quantization",
    "QuantizeRequest": "quantization",
    "QuantizedModel": "quantization",
    "Recommendation": "_recommendation",
    "ShrinkResult": "_variants",
    "TfliteRequest": "tflite",
    "TrainingMemory": "_variants",
    "VariantLimits": "_recommendation",
    "VariantReport": "_variants",
    "compare_variants": "_compare",
    "distill": "distillation",
    "distill_detector": "distillation",
    "find_variant_front": "_recommendation",
    "finish_qat": "quantization",
    "load_pruned": "pruning",
    "load_quantized": "quantization",
    "measure_variant": "_measure",
    "prepare_qat": "quantization",
    "prune": "pruning",
    "prune_detector": "pruning",
    "quantize": "quantization",
    "quantize_detector": "quantization",
    "quantize_to_onnx": "quantization",
    "recommend_variant": "_recommendation",
    "save_pruned": "pruning",
    "save_quantized": "quantization",
    "shrink_executorch": "export",
    "shrink_litert": "export",
    "shrink_onnx": "export",
    "shrink_tflite": "tflite",
    "soft_targets": "distillation",
}

__all__ = [
    "PRUNE_FILE",
    "QAT_HYPERPARAMETERS",
    "QUANTIZE_FILE",
    "CompareRequest",
    "CompareResult",
    "ExportRequest",
    "Int8File",
    "Latency",
    "OutputDifference",
    "PreparedModel",
    "PruneRequest",
    "PrunedModel",
    "QuantizeRequest",
    "QuantizedModel",
    "Recommendation",
    "ShrinkResult",
    "TfliteRequest",
    "TrainingMemory",
    "VariantLimits",
    "VariantReport",
    "compare_variants",
    "distill",
    "distill_detector",
    "find_variant_front",
    "finish_qat",
    "load_pruned",
    "load_quantized",
    "measure_variant",
    "prepare_qat",
    "prune",
    "prune_detector",
    "quantize",
    "quantize_detector",
    "quantize_to_onnx",
    "recommend_variant",
    "save_pruned",
    "save_quantized",
    "shrink_executorch",
    "shrink_litert",
    "shrink_onnx",
    "shrink_tflite",
    "soft_targets",
]


if not TYPE_CHECKING:  # so that type checkers report unknown names

    def __getattr__(name: str) -> object:
        """Load a public name on first use."""
        if name in _HOME:
            return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        raise AttributeError(f"module 'oomph.shrink' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
