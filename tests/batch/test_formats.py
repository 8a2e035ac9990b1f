"""Named formats split detection batches, and functions of the user are checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oomph.batch import FORMAT_NAMES, BatchFormat, batch_format, micro_batch_sizes
from oomph.errors import UnknownName, UsageError

from .nested_batches import rows
from .test_samples import image, target

YOLO, TORCHVISION = batch_format("yolo"), batch_format("torchvision")


@st.composite
def yolo_batches(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Return images, the index of the image of each box in any order, and a number for each box."""
    images = draw(st.integers(1, 6))
    indices = draw(st.lists(st.integers(0, images - 1), max_size=9))
    return rows(images, (2,)), torch.tensor(indices, dtype=torch.float32), torch.arange(len(indices)).float()


def boxes_of_images(parts: list[tuple[Tensor, Tensor, Tensor]]) -> list[tuple[int, float]]:
    """Return the boxes of all parts as (image in the whole batch, number of the box)."""
    boxes, begin = [], 0
    for images, indices, numbers in parts:
        assert ((indices >= 0) & (indices < len(images))).all()
        boxes += [(begin + int(index), float(number)) for index, number in zip(indices, numbers, strict=True)]
        begin += len(images)
    return sorted(boxes)


@settings(max_examples=30, deadline=None)
@given(batch=yolo_batches(), data=st.data())
def test_yolo_targets_follow_their_images(batch: tuple[Tensor, Tensor, Tensor], data: st.DataObject) -> None:
    images, indices, numbers = batch
    micro_batches = data.draw(st.integers(1, len(images)))
    sizes = micro_batch_sizes(len(images), micro_batches)
    targets = torch.stack([indices, numbers, *[torch.zeros(len(indices))] * 4], 1)
    before = targets.clone()
    paths = tuple(f"{row}.jpg" for row in range(len(images)))
    parts = YOLO.split((images, targets, paths, None), micro_batches)
    assert torch.equal(targets, before)
    assert [YOLO.count(part) for part in parts] == sizes
    assert torch.equal(torch.cat([part[0] for part in parts]), images)
    assert tuple(path for part in parts for path in part[2]) == paths
    expected = boxes_of_images([batch])
    assert boxes_of_images([(part[0], part[1][:, 0], part[1][:, 1]) for part in parts]) == expected

    fields = {"img": images, "batch_idx": indices, "cls": numbers[:, None], "bboxes": torch.zeros(len(indices), 4)}
    lists = {"im_file": list(paths), "ratio_pad": tuple((1.0, row) for row in range(len(images))), "augment": "mosaic"}
    whole: dict[str, Any] = {**fields, **lists}
    parts = YOLO.split(whole, micro_batches)
    assert [YOLO.count(part) for part in parts] == sizes
    assert boxes_of_images([(part["img"], part["batch_idx"], part["cls"][:, 0]) for part in parts]) == expected
    assert [path for part in parts for path in part["im_file"]] == list(paths)
    assert tuple(pad for part in parts for pad in part["ratio_pad"]) == whole["ratio_pad"]
    assert all(part["augment"] == "mosaic" and len(part["bboxes"]) == len(part["cls"]) for part in parts)


def test_masks_of_a_yolo_batch_follow_images_or_boxes() -> None:
    batch = {"img": rows(2), "batch_idx": torch.tensor([0, 1, 1]), "cls": rows(3), "bboxes": rows(3, (4,))}
    assert [len(part["masks"]) for part in YOLO.split({**batch, "masks": rows(2)}, 2)] == [1, 1]
    assert [len(part["masks"]) for part in YOLO.split({**batch, "masks": rows(3)}, 2)] == [1, 2]
    assert [len(part["segments"]) for part in YOLO.split({**batch, "segments": ["a", "b", "c"]}, 2)] == [1, 2]
    crowded = {"img": rows(2), "batch_idx": torch.tensor([1, 1]), "cls": rows(2), "masks": rows(2)}
    with pytest.raises(UsageError, match=r"batch\['masks'\] has 2 rows, and the batch has as many images as boxes"):
        YOLO.split(crowded, 2)
    single = {**crowded, "batch_idx": torch.tensor([0, 1])}
    assert [len(part["masks"]) for part in YOLO.split(single, 2)] == [1, 1]


@pytest.mark.parametrize("kind", [list, tuple])
def test_torchvision_batches_are_split_by_images(kind: Any) -> None:
    images, targets = kind(image(8 + row) for row in range(3)), kind(target(3) for _ in range(3))
    for batch in ((images, targets), [images, targets], {"images": images, "targets": targets, "epoch": 4}):
        parts = TORCHVISION.split(batch, 2)
        assert TORCHVISION.count(batch) == 3
        assert [TORCHVISION.count(part) for part in parts] == [2, 1]
        assert all(type(part) is type(batch) for part in parts)
    assert [part["epoch"] for part in parts] == [4, 4]
    assert [item for part in parts for item in part["images"]] == list(images)
    assert [item for part in parts for item in part["targets"]] == list(targets)


def test_lists_of_samples_are_split_by_items() -> None:
    batch = [{"image": image(), "label": row} for row in range(3)]  # three channels, three samples
    samples = batch_format("list")
    assert samples.count(batch) == 3
    assert samples.split(batch, 2) == [batch[:2], batch[2:]]
    with pytest.raises(UsageError, match=r'batch has 3 items and the batch 3 samples.*split="list"'):
        batch_format(samples=len).split(batch, 2)


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("torchvision", ([image()] * 3, [target(1)] * 2)),
        ("torchvision", (rows(4), rows(4))),
        ("torchvision", rows(4)),
        ("list", rows(4)),
        ("list", []),
        ("yolo", rows(4)),
        ("yolo", (rows(4), rows(4))),
        ("yolo", {"img": rows(4), "cls": rows(9)}),
    ],
)
def test_batches_of_another_form_are_rejected(name: str, batch: Any) -> None:
    with pytest.raises(UsageError, match=f'split="{name}" got .*pass'):
        batch_format(name).split(batch, 2)


@pytest.mark.parametrize("micro_batches", [0, 3])
def test_too_many_micro_batches_are_rejected(micro_batches: int) -> None:
    for name, batch in (("yolo", (rows(2), torch.zeros(0, 6))), ("torchvision", ([image()] * 2, [target(1)] * 2))):
        with pytest.raises(UsageError, match=f"2 samples can't be split into {micro_batches} micro-batches"):
            batch_format(name).split(batch, micro_batches)


def test_a_batch_format_combines_functions_of_the_user() -> None:
    batch = {"boxes": torch.zeros(11, 4), "images": torch.zeros(4, 3, 8, 8)}
    by_structure = batch_format()
    with pytest.raises(UsageError, match="4 and 11 rows"):
        by_structure.count(batch)
    counted = batch_format(samples=lambda batch: len(batch["images"]))
    assert counted.count(batch) == 4
    assert [len(part["images"]) for part in counted.split(batch, 3)] == [2, 1, 1]
    halves = batch_format(lambda batch, n: [batch] * n, lambda _: 7)
    assert (halves.count(batch), len(halves.split(batch, 2))) == (7, 2)
    assert batch_format(lambda batch, n: [batch] * n).count((rows(5), rows(5))) == 5
    own = BatchFormat(lambda batch, n: [batch] * n, len)
    assert batch_format(own) is own
    assert batch_format("yolo", lambda _: 3).count(batch) == 3


def test_unknown_names_and_values_are_rejected() -> None:
    assert FORMAT_NAMES == ("list", "torchvision", "yolo")
    with pytest.raises(UnknownName, match="split is 'yolov5'; did you mean 'yolo'") as caught:
        batch_format("yolov5")
    assert caught.value.nearest == ("yolo",)
    with pytest.raises(UnknownName, match="choose from list, torchvision, yolo"):
        batch_format("keras")
    number: Any = 32
    with pytest.raises(UsageError, match="split is 32; pass a function"):
        batch_format(number)
    with pytest.raises(UsageError, match="samples is 32; pass a function"):
        batch_format(samples=number)
