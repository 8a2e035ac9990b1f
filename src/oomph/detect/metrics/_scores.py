"""How good detections are: mAP by the COCO definition, by class and by object size, and the curves behind it."""

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

Array = NDArray[np.float64]
_HALF = 0  # the first threshold of overlap is 0.5
_SIZES = ("all", "small", "medium", "large")
_MOST = 300  # boxes of an image that are looked at; more where windows of it were put together


@dataclass(frozen=True)
class ImageResult:
    """What was found in an image and what is there, in pixels of the original image.

    Attributes:
        found: (n, 6): left, top, right, bottom, confidence, class.
        truth: (m, 5): class, left, top, right, bottom.
    """

    found: NDArray[np.float32]
    truth: NDArray[np.float32]


@dataclass(frozen=True)
class ClassScore:
    """How well one class is found.

    Attributes:
        name: of the class.
        boxes: how many there are; with none, every figure is None.
        map50, map50_95: mean precision at an overlap of 0.5, and over 0.5 to 0.95.
        precision, recall, confidence: at the threshold of confidence where precision and recall balance best.
        curve: precision at recalls of 0, 0.01, … 1 and an overlap of 0.5.
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
    """How good detections are.

    Attributes:
        map50, map50_95: means over classes that have boxes.
        precision, recall: means of the classes' own.
        by_size: mAP50-95 of small (below 32² pixels), medium and large (from 96²) objects; None where there are none.
        by_class: the classes.
        images, boxes: how many were looked at.
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
        """What the best checkpoint is chosen by."""
        return 0.1 * self.map50 + 0.9 * self.map50_95


def has_metrics() -> bool:
    """Whether a COCO evaluation library is installed."""
    return any(importlib.util.find_spec(name) for name in ("faster_coco_eval", "pycocotools"))


def score(results: Sequence[ImageResult], names: Sequence[str]) -> Scores:
    """Score detections.

    Raises:
        OomphError: no COCO evaluation library is installed.
    """
    boxes = [int((result.truth[:, 0] == at).sum()) for result in results for at in range(len(names))]
    counts = np.array(boxes, dtype=np.int64).reshape(-1, len(names)).sum(0)
    if not counts.sum() or not any(len(result.found) for result in results):
        return _nothing(results, names, counts)
    evaluated = _evaluate(results, len(names))
    # Overlap thresholds, recalls, classes, sizes; -1 where a class has no boxes of that size.
    precision = evaluated["precision"][..., -1]
    sureness = evaluated["scores"][_HALF, :, :, 0, -1]
    by_class = tuple(
        _class_score(name, int(counts[at]), precision[:, :, at, 0], sureness[:, at]) for at, name in enumerate(names)
    )
    return Scores(
        map50=_mean(precision[_HALF, :, :, 0]) or 0.0,
        map50_95=_mean(precision[:, :, :, 0]) or 0.0,
        precision=_average([one.precision for one in by_class]),
        recall=_average([one.recall for one in by_class]),
        by_size={name: _mean(precision[..., at]) for at, name in enumerate(_SIZES) if at},
        by_class=by_class,
        images=len(results),
        boxes=int(counts.sum()),
    )


def _nothing(results: Sequence[ImageResult], names: Sequence[str], counts: NDArray[np.int64]) -> Scores:
    """Scores where nothing was found, or nothing was there: all zero, without asking the library."""
    nil = (0.0,) * 101
    by_class = tuple(
        ClassScore(name, int(count), *_blank(present=count > 0), None, nil if count else ())
        for name, count in zip(names, counts, strict=True)
    )
    return Scores(0.0, 0.0, 0.0, 0.0, dict.fromkeys(_SIZES[1:]), by_class, len(results), int(counts.sum()))


def _blank(*, present: bool) -> tuple[float | None, float | None, float | None, float | None]:
    value = 0.0 if present else None
    return value, value, value, value


def _class_score(name: str, boxes: int, precision: Array, sureness: Array) -> ClassScore:
    if not boxes:
        return ClassScore(name, 0, None, None, None, None, None, ())
    curve = precision[_HALF]
    recalls = np.linspace(0, 1, len(curve))
    balance = 2 * curve * recalls / np.maximum(curve + recalls, 1e-12)
    best = int(balance.argmax())
    figures = (float(curve[best]), float(recalls[best]) if curve[best] > 0 else 0.0, float(sureness[best]))
    return ClassScore(name, boxes, _mean(curve), _mean(precision), *figures, tuple(float(value) for value in curve))


def _mean(values: Array) -> float | None:
    there = values[values > -1]
    return float(there.mean()) if there.size else None


def _average(values: Sequence[float | None]) -> float:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else 0.0


def _evaluate(results: Sequence[ImageResult], classes: int) -> Any:
    """The library's tables; it prints as it goes, which nobody asked for."""
    coco, evaluator = _library()
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco()
        truth.dataset = _truth(results, classes)
        truth.createIndex()
        evaluation = evaluator(truth, truth.loadRes(_found(results)), "bbox")
        evaluation.params.maxDets = [1, 10, max(_MOST, *(len(result.found) for result in results))]
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation.eval


def _library() -> tuple[Any, Any]:
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
        raise OomphError(
            "mAP needs a COCO evaluation library and none is installed", "pip install faster-coco-eval"
        ) from None
    return Coco, COCOeval


def _truth(results: Sequence[ImageResult], classes: int) -> dict[str, Any]:
    annotations: list[dict[str, Any]] = []
    for image, result in enumerate(results, 1):
        for label, left, top, right, bottom in result.truth.astype(float).tolist():
            wide, high = right - left, bottom - top
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image,
                    "category_id": int(label) + 1,
                    "bbox": [left, top, wide, high],
                    "area": wide * high,
                    "iscrowd": 0,
                }
            )
    return {
        "info": {},
        "images": [{"id": image} for image in range(1, len(results) + 1)],
        "categories": [{"id": label + 1, "name": str(label)} for label in range(classes)],
        "annotations": annotations,
    }


def _found(results: Sequence[ImageResult]) -> list[dict[str, Any]]:
    return [
        {
            "image_id": image,
            "category_id": int(label) + 1,
            "bbox": [left, top, right - left, bottom - top],
            "score": sure,
        }
        for image, result in enumerate(results, 1)
        for left, top, right, bottom, sure, label in result.found.astype(float).tolist()
    ]
