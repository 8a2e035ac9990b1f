"""Smaller models: each method ends in a file that runs and in one table of what it saves and costs.

Names are loaded on first use, so that the processes that are measured import only what they need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._measure import measure_variant as measure_variant
    from ._variants import Latency as Latency
    from ._variants import OutputDifference as OutputDifference
    from ._variants import ShrinkResult as ShrinkResult
    from ._variants import TrainingMemory as TrainingMemory
    from ._variants import VariantReport as VariantReport
    from .distillation import distill as distill
    from .distillation import soft_targets as soft_targets
    from .export import OnnxRequest as OnnxRequest
    from .export import shrink_onnx as shrink_onnx
    from .pruning import PrunedModel as PrunedModel
    from .pruning import PruneRequest as PruneRequest
    from .pruning import load_prune_request as load_prune_request
    from .pruning import load_pruned as load_pruned
    from .pruning import prune as prune
    from .pruning import prune_detector as prune_detector
    from .pruning import save_pruned as save_pruned
    from .tflite import TfliteRequest as TfliteRequest
    from .tflite import shrink_tflite as shrink_tflite

_HOME = {
    "Latency": "_variants",
    "OnnxRequest": "export",
    "OutputDifference": "_variants",
    "ShrinkResult": "_variants",
    "TfliteRequest": "tflite",
    "TrainingMemory": "_variants",
    "VariantReport": "_variants",
    "distill": "distillation",
    "measure_variant": "_measure",
    "PruneRequest": "pruning",
    "PrunedModel": "pruning",
    "load_prune_request": "pruning",
    "load_pruned": "pruning",
    "prune": "pruning",
    "prune_detector": "pruning",
    "save_pruned": "pruning",
    "shrink_onnx": "export",
    "shrink_tflite": "tflite",
    "soft_targets": "distillation",
}

__all__ = [
    "Latency",
    "OnnxRequest",
    "OutputDifference",
    "PruneRequest",
    "PrunedModel",
    "ShrinkResult",
    "TfliteRequest",
    "TrainingMemory",
    "VariantReport",
    "distill",
    "load_prune_request",
    "load_pruned",
    "measure_variant",
    "prune",
    "prune_detector",
    "save_pruned",
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
