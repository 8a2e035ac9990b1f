"""Detection metrics: mAP by the COCO definition, per class and object size, with precision-recall curves."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import OomphError
from ._image_result import ImageResult

_FloatArray = NDArray[np.float64]
_IOU50 = 0  # index of the IoU threshold 0.5
_SIZES = ("all", "small", "medium", "large")
_MIN_MAX_DETS = 300  # boxes per image that are scored; more if tiles were merged
_CURVE_POINTS = 101


@dataclass(frozen=True)
class ClassScore:
    """Metrics of one class.

    Attributes:
        name: class name.
        boxes: number of labeled boxes; without any, all metrics are None.
        map50, map50_95: average precision at IoU 0.5, and averaged over 0.5 to 0.95.
        precision, recall, confidence: at the confidence threshold with the best F1.
        curve: precision at recall 0, 0.01, … 1 and IoU 0.5.
    """

    name: str
    boxes: int
    map50: float | None
    map50_95: float | None
    precision: float | None
    recall: float | None
    confidence: float | None
    curve: tuple[float, ...]


@dataclass(frozen=True)
class Scores:
    """Detection metrics of a split.

    Attributes:
        map50, map50_95: means over classes with boxes.
        precision, recall: means over classes with boxes.
        by_size: mAP50-95 of small (below 32² pixels), medium and large (from 96²) objects; None if there are none.
        by_class: metrics of each class.
        images, boxes: number of images and labeled boxes.
    """

    map50: float
    map50_95: float
    precision: float
    recall: float
    by_size: dict[str, float | None]
    by_class: tuple[ClassScore, ...]
    images: int
    boxes: int

    @property
    def fitness(self) -> float:
        """Weighted mAP that selects the best checkpoint, as in YOLOv5."""
        return 0.1 * self.map50 + 0.9 * self.map50_95


def has_metrics() -> bool:
    """Return True if a COCO evaluation library is installed."""
    return any(importlib.util.find_spec(name) for name in ("faster_coco_eval", "pycocotools"))


def score(results: Sequence[ImageResult], names: Sequence[str]) -> Scores:
    """Compute the metrics of predictions.

    Raises:
        OomphError: no COCO evaluation library is installed.
    """
    boxes = [int((result.truth[:, 0] == label).sum()) for result in results for label in range(len(names))]
    counts = np.array(boxes, dtype=np.int64).reshape(-1, len(names)).sum(0)
    if not counts.sum() or not any(len(result.predictions) for result in results):
        return _zero_scores(results, names, counts)
    tables = _evaluate(results, len(names))
    # Axes: IoU thresholds, recalls, classes, sizes; -1 where a class has no boxes of that size.
    precision = tables["precision"][..., -1]
    confidence = tables["scores"][_IOU50, :, :, 0, -1]
    by_class = tuple(
        _class_score(name, int(counts[label]), precision[:, :, label, 0], confidence[:, label])
        for label, name in enumerate(names)
    )
    return Scores(
        map50=_mean_valid(precision[_IOU50, :, :, 0]) or 0.0,
        map50_95=_mean_valid(precision[:, :, :, 0]) or 0.0,
        precision=_mean([item.precision for item in by_class]),
        recall=_mean([item.recall for item in by_class]),
        by_size={name: _mean_valid(precision[..., size]) for size, name in enumerate(_SIZES) if size},
        by_class=by_class,
        images=len(results),
        boxes=int(counts.sum()),
    )


def _zero_scores(results: Sequence[ImageResult], names: Sequence[str], counts: NDArray[np.int64]) -> Scores:
    """Return all zeros without calling the library, which fails without predictions or boxes."""
    by_class = tuple(
        ClassScore(name, int(count), 0.0, 0.0, 0.0, 0.0, None, (0.0,) * _CURVE_POINTS) if count else _no_boxes(name)
        for name, count in zip(names, counts, strict=True)
    )
    return Scores(0.0, 0.0, 0.0, 0.0, dict.fromkeys(_SIZES[1:]), by_class, len(results), int(counts.sum()))


def _no_boxes(name: str) -> ClassScore:
    return ClassScore(name, 0, None, None, None, None, None, ())


def _class_score(name: str, boxes: int, precision: _FloatArray, confidence: _FloatArray) -> ClassScore:
    if not boxes:
        return _no_boxes(name)
    curve = precision[_IOU50]
    recalls = np.linspace(0, 1, len(curve))
    f1 = 2 * curve * recalls / np.maximum(curve + recalls, 1e-12)
    best = int(f1.argmax())
    at_best = (float(curve[best]), float(recalls[best]) if curve[best] > 0 else 0.0, float(confidence[best]))
    points = tuple(float(value) for value in curve)
    return ClassScore(name, boxes, _mean_valid(curve), _mean_valid(precision), *at_best, points)


def _mean_valid(values: _FloatArray) -> float | None:
    valid = values[values > -1]
    return float(valid.mean()) if valid.size else None


def _mean(values: Sequence[float | None]) -> float:
    valid = [value for value in values if value is not None]
    return sum(valid) / len(valid) if valid else 0.0


def _evaluate(results: Sequence[ImageResult], classes: int) -> Any:
    """Return the tables of the COCO library, with its output to stdout suppressed."""
    coco_class, evaluator_class = _coco_library()
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco_class()
        truth.dataset = _coco_truth(results, classes)
        truth.createIndex()
        evaluation = evaluator_class(truth, truth.loadRes(_coco_predictions(results)), "bbox")
        evaluation.params.maxDets = [1, 10, max(_MIN_MAX_DETS, *(len(result.predictions) for result in results))]
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation.eval


def _coco_library() -> tuple[Any, Any]:
    try:
        from faster_coco_eval import COCO, COCOeval_faster  # noqa: PLC0415  optional, and slow to import
    except ImportError:
        pass
    else:
        return COCO, COCOeval_faster
    try:
        from pycocotools.coco import COCO as Coco  # noqa: N811, PLC0415
        from pycocotools.cocoeval import COCOeval  # noqa: PLC0415
    except ImportError:
        raise OomphError("mAP needs a COCO evaluation library", "pip install faster-coco-eval") from None
    return Coco, COCOeval


def _coco_truth(results: Sequence[ImageResult], classes: int) -> dict[str, Any]:
    annotations: list[dict[str, Any]] = []
    for image, result in enumerate(results, 1):
        for label, left, top, right, bottom in result.truth.astype(float).tolist():
            width, height = right - left, bottom - top
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image,
                    "category_id": int(label) + 1,
                    "bbox": [left, top, width, height],
                    "area": width * height,
                    "iscrowd": 0,
                }
            )
    return {
        "info": {},
        "images": [{"id": image} for image in range(1, len(results) + 1)],
        "categories": [{"id": label + 1, "name": str(label)} for label in range(classes)],
        "annotations": annotations,
    }


def _coco_predictions(results: Sequence[ImageResult]) -> list[dict[str, Any]]:
    return [
        {
            "image_id": image,
            "category_id": int(label) + 1,
            "bbox": [left, top, right - left, bottom - top],
            "score": confidence,
        }
        for image, result in enumerate(results, 1)
        for left, top, right, bottom, confidence, label in result.predictions.astype(float).tolist()
    ]
