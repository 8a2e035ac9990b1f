"""YOLOv5 detectors: model, dataset, checkpoint files, metrics, plots, inference and training.

Names are loaded on first use, so that worker processes, which only build samples, never import torch.
"""
# ruff: noqa: F403, F405  `__all__` lists the public names of the subpackages

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checkpoint import *
    from .dataset import *
    from .inference import *
    from .metrics import *
    from .model import *
    from .plots import *
    from .runtimes import *
    from .training import *

# In import order: those without torch first.
_SUBPACKAGES = ("runtimes", "dataset", "model", "checkpoint", "metrics", "plots", "inference", "training")

__all__ = [
    "ANCHORS",
    "ARCHITECTURES",
    "EXPORT_FORMATS",
    "FLAGS",
    "STRIDES",
    "VAL_NMS",
    "AnchorCheck",
    "Architecture",
    "Augmentation",
    "ClassScore",
    "ConfidenceCurves",
    "DataIssue",
    "Dataset",
    "DemoSize",
    "DetectResult",
    "DetectionLoss",
    "Detector",
    "DrawnBox",
    "Ema",
    "ExportFormat",
    "ExportMetadata",
    "ExportedFile",
    "HeadOutputs",
    "Hyperparameters",
    "ImageDetections",
    "ImageResult",
    "IndexedSplit",
    "InferenceConfig",
    "LabelTable",
    "LabeledImages",
    "LoadConfig",
    "LossGains",
    "LossParts",
    "NmsConfig",
    "NoProgress",
    "Positives",
    "ProgressCallback",
    "RectBatch",
    "SavedConfig",
    "Schedule",
    "ScheduleStep",
    "Scores",
    "SmallerNetwork",
    "Split",
    "StepStats",
    "TrainConfig",
    "TrainForecast",
    "TrainLoss",
    "TrainResult",
    "TrainingData",
    "Weights",
    "Yolov5",
    "accumulation",
    "append_litert_metadata",
    "as_single_cls",
    "box_iou",
    "build_optimizer",
    "build_sample",
    "change_settings",
    "changed_settings",
    "check_anchors",
    "choose_images",
    "compose_sample",
    "confidence_curves",
    "confusion_matrix",
    "cxcywh_to_xyxy",
    "demo_config",
    "detect_objects",
    "detection_job",
    "draw_boxes",
    "draw_scene",
    "executorch_metadata",
    "find_device",
    "forecast",
    "freeze",
    "has_metrics",
    "image_grid",
    "index_split",
    "is_exported",
    "label_boxes",
    "label_path",
    "labels_plot",
    "load_config",
    "load_detector",
    "load_weights",
    "memory_plot",
    "nms",
    "open_exported",
    "parameter_groups",
    "parse_hyperparameters",
    "predict_training",
    "prediction_boxes",
    "pruned_networks",
    "read_checkpoint",
    "read_data",
    "read_dataset",
    "read_hyperparameters",
    "read_results",
    "read_settings",
    "read_split",
    "read_teacher",
    "read_weights",
    "rect_batches",
    "results_plot",
    "round_to_stride",
    "run_unguarded",
    "save_weights",
    "scaled_widths",
    "score",
    "set_lr",
    "settings_text",
    "shared_images",
    "should_stop",
    "silent_stderr",
    "smaller_sizes",
    "tiling",
    "train",
    "validate",
    "validate_weights",
    "validation_loader",
    "validation_plots",
    "with_saved_teacher",
    "write_demo_dataset",
    "write_results",
    "xyxy_to_cxcywh",
    "yolov5",
]


if not TYPE_CHECKING:  # so that type checkers report unknown names

    def __getattr__(name: str) -> object:
        """Load a public name on first use."""
        if name in __all__:
            import importlib  # noqa: PLC0415  only needed here

            for package in _SUBPACKAGES:
                module = importlib.import_module(f"{__name__}.{package}")
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module 'oomph.detect' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
