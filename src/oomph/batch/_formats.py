"""Ways to count and split batches: by their structure, by the user's functions, or by the name of a known form."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UnknownName, UsageError, quote
from ._samples import SampleCounter, count_samples, rows_of
from ._split import micro_batch_sizes, slices, split_samples
from ._structure import container_of

Splitter = Callable[[Any, int], Sequence[Any]]

_BOX_FIELDS = {"batch_idx", "cls", "bboxes", "keypoints", "segments"}
_IMAGE_FIELDS = {"img", "im_file", "ori_shape", "resized_shape", "ratio_pad"}
_TARGET_RANK = 2


@dataclass(frozen=True)
class BatchFormat:
    """How batches are counted and split.

    Attributes:
        split: returns the micro-batches of (batch, number of micro-batches).
        count: returns the number of samples of a batch or micro-batch.
        by_structure: True if `split` makes micro-batches of known sizes, `micro_batch_sizes`.
    """

    split: Splitter
    count: SampleCounter
    by_structure: bool = False


def batch_format(
    split: Splitter | BatchFormat | str | None = None, samples: SampleCounter | None = None
) -> BatchFormat:
    """Return how batches are counted and split.

    Args:
        split: a function of (batch, n), a format, the name of one, or None to split by the structure of the batch.
        samples: counts the samples of a batch; None counts by its format or structure.

    Raises:
        UnknownName: no format has this name.
        UsageError: `split` or `samples` is something else.
    """
    if samples is not None and not callable(samples):
        raise UsageError(f"samples is {quote(samples)}", "pass a function of the batch that returns a number")
    if isinstance(split, str):
        split = _named_format(split)
    if isinstance(split, BatchFormat):
        return split if samples is None else BatchFormat(split.split, lambda batch: count_samples(batch, samples))

    def count(batch: Any) -> int:
        return count_samples(batch, samples)

    if split is None:
        return BatchFormat(lambda batch, parts: split_samples(batch, count(batch), parts), count, by_structure=True)
    if not callable(split):
        raise UsageError(
            f"split is {quote(split)}", f"pass a function of (batch, n), or one of {', '.join(FORMAT_NAMES)}"
        )
    return BatchFormat(split, count)


def _named_format(name: str) -> BatchFormat:
    if name not in _FORMATS:
        nearest = tuple(difflib.get_close_matches(name, _FORMATS, n=1))
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"choose from {', '.join(FORMAT_NAMES)}"
        raise UnknownName(f"split is {quote(name)}", hint, nearest)
    return _FORMATS[name]


# list: a list or tuple of samples, as a loader with `collate_fn=list` returns it.


def _count_list(batch: Any) -> int:
    if not isinstance(batch, list | tuple) or not batch:
        raise UsageError(f'split="list" got {quote(batch)}', "pass a list with one item per sample")
    return len(batch)


def _split_list(batch: Any, micro_batches: int) -> list[Any]:
    return [batch[rows] for rows in _slices(_count_list(batch), micro_batches)]


# torchvision: (images, targets), lists or tuples with an item per image, or a dict or dataclass of such lists.


def _count_torchvision(batch: Any) -> int:
    container = container_of(batch)
    lists = (
        [] if container is None else [len(item) for item in container.values(batch) if isinstance(item, list | tuple)]
    )
    if not lists or len(set(lists)) > 1:
        lengths = " and ".join(map(str, sorted(set(lists)))) or "no"
        raise UsageError(
            f'split="torchvision" got a {type(batch).__name__} with lists of {lengths} items',
            "pass (images, targets), two lists with one item per image, or a dict of such lists",
        )
    return lists[0]


def _split_torchvision(batch: Any, micro_batches: int) -> list[Any]:
    images = _count_torchvision(batch)
    container = container_of(batch)
    assert container is not None  # noqa: S101  counting checked it
    return [
        container.rebuild(batch, [_image_rows(item, rows, images) for item in container.values(batch)])
        for rows in _slices(images, micro_batches)
    ]


# YOLO: (images, targets, …) with a target per row that begins with the number of its image, or Ultralytics' dict.


def _count_yolo(batch: Any) -> int:
    if isinstance(batch, Mapping):
        images, indices = batch.get("img"), batch.get("batch_idx")
    elif isinstance(batch, list | tuple) and len(batch) > 1:
        images, targets = batch[:2]
        indices = targets[:, 0] if isinstance(targets, Tensor) and targets.dim() == _TARGET_RANK else None
    else:
        images = indices = None
    count = len(images) if isinstance(images, list | tuple) else rows_of(images)
    if count is None or not isinstance(indices, Tensor):
        raise UsageError(
            f'split="yolo" got a {type(batch).__name__} of another form',
            "pass (images, targets), with the number of its image in the first column of each target, or a dict with "
            "img, batch_idx, cls and bboxes",
        )
    return count


def _split_yolo(batch: Any, micro_batches: int) -> list[Any]:
    images = _count_yolo(batch)
    split = _split_yolo_dict if isinstance(batch, Mapping) else _split_yolo_tuple
    return [split(batch, rows, images) for rows in _slices(images, micro_batches)]


def _split_yolo_tuple(batch: Any, rows: slice, images: int) -> Any:
    pixels, targets, *others = batch
    part = targets[_in_slice(targets[:, 0], rows)].clone()
    part[:, 0] -= rows.start
    container = container_of(batch)
    assert container is not None  # noqa: S101  it is a list or tuple
    return container.rebuild(batch, [pixels[rows], part, *(_image_rows(item, rows, images) for item in others)])


def _split_yolo_dict(batch: Any, rows: slice, images: int) -> Any:
    indices = batch["batch_idx"]
    in_slice = _in_slice(indices.reshape(-1), rows)
    boxes = len(in_slice)
    has_one_box_per_image = boxes == images and torch.equal(indices.reshape(-1).long().cpu(), torch.arange(images))
    values = []
    for name, value in batch.items():
        is_per_image = name in _IMAGE_FIELDS or _length(value) == images
        is_per_box = name not in _IMAGE_FIELDS and _length(value) == boxes
        if name == "batch_idx":
            values.append(value[in_slice] - rows.start)
        elif name in _BOX_FIELDS or (is_per_box and not is_per_image):
            values.append(_select(value, in_slice))
        elif is_per_box and is_per_image and not has_one_box_per_image and isinstance(value, Tensor):
            raise UsageError(
                f"batch[{name!r}] has {images} rows, and the batch has as many images as boxes",
                "give the guard split=, a function of (batch, n) that returns a list of n smaller batches",
            )
        else:
            values.append(_image_rows(value, rows, images))
    container = container_of(batch)
    assert container is not None  # noqa: S101  it is a mapping
    return container.rebuild(batch, values)


def _in_slice(indices: Tensor, rows: slice) -> Tensor:
    return torch.logical_and(indices >= rows.start, indices < rows.stop)


def _select(value: Any, mask: Tensor) -> Any:
    """Return the boxes of a micro-batch, from a tensor or a list."""
    if isinstance(value, Tensor):
        return value[mask.to(value.device)]
    return [item for item, is_kept in zip(value, mask.tolist(), strict=True) if is_kept]


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, list | tuple) else rows_of(value)


def _image_rows(value: Any, rows: slice, images: int) -> Any:
    """Return the rows or items of some images, or the value itself if it has another length."""
    return value[rows] if _length(value) == images else value


def _slices(samples: int, micro_batches: int) -> list[slice]:
    if not 1 <= micro_batches <= samples:
        raise UsageError(f"{samples} samples can't be split into {micro_batches} micro-batches", "request fewer")
    return slices(micro_batch_sizes(samples, micro_batches))


_FORMATS = {
    "list": BatchFormat(_split_list, _count_list),
    "torchvision": BatchFormat(_split_torchvision, _count_torchvision),
    "yolo": BatchFormat(_split_yolo, _count_yolo),
}
FORMAT_NAMES = tuple(_FORMATS)
