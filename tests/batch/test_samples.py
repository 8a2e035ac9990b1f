"""The number of samples comes from all fields, and what can't be known is asked about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import default_collate

from oomph.batch import count_samples
from oomph.errors import UsageError

from .nested_batches import nested_batches, rows


def image(height: int = 8, width: int = 9, channels: int = 3) -> Tensor:
    return torch.zeros(channels, height, width)


def target(boxes: int) -> dict[str, Tensor]:
    return {"boxes": torch.zeros(boxes, 4), "labels": torch.zeros(boxes, dtype=torch.int64)}


@dataclass
class Example:
    image: Tensor
    label: int


@settings(max_examples=30, deadline=None)
@given(data=st.data(), samples=st.integers(1, 9))
def test_any_nesting_has_the_samples_of_its_tensors(data: st.DataObject, samples: int) -> None:
    assert count_samples(data.draw(nested_batches(samples))) == samples


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (rows(5), 5),
        ([rows(5, (2,)), rows(5, (2,))], 5),  # inputs and targets that look the same
        ([rows(2, (2,)), rows(2, (2,))], 2),
        ([rows(5)], 5),
        ([rows(5, (2,)), rows(5, (2,)), rows(5, (2,))], 5),  # ids, mask and labels
        (((rows(5, (2,)), rows(5, (2,))), rows(5)), 5),
        ({"inputs": {"ids": rows(5, (7,))}, "scale": torch.tensor(1.0)}, 5),
        ([{"ids": rows(5)}, {"labels": rows(5)}], 5),
        ({"image": np.zeros((5, 2)), "label": rows(5)}, 5),
        (([image(), image(9), image(), image()], rows(4)), 4),
        (([image()] * 3, rows(3)), 3),
        (([image(), image(9)], [target(3), target(1)]), 2),
        (([image(), image(9)], [target(3), target(3)]), 2),  # three boxes for three channels
        (([image()], [target(3)]), 1),
        ({"images": [image()] * 5, "targets": [target(0)] * 5}, 5),
        (((image(), image()), (target(1), target(2))), 2),  # torchvision's collate function returns tuples
        ([{"image": image(5), "boxes": rows(row, (4,))} for row in range(4)], 4),  # a list of samples
        ({"points": [rows(9, (3,)), rows(4, (3,))]}, 2),
        ([Example(image(), 1), Example(image(channels=1), 2)], 2),
        ([(rows(9), 1), (rows(7), 0), (rows(5), 1)], 3),
        (default_collate([(rows(4), 1, "a"), (rows(4), 2, "b")]), 2),
    ],
)
def test_samples_of_usual_batches(batch: Any, samples: int) -> None:
    assert count_samples(batch) == samples


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            {"boxes": torch.zeros(11, 4), "images": torch.zeros(4, 3, 8, 8)},
            r"have 4 and 11 rows \(batch\['boxes'\] \(11, 4\), batch\['images'\] \(4, 3, 8, 8\)\).*samples=.*split=",
        ),
        ((torch.zeros(4, 2), torch.zeros(11, 6)), r"4 and 11 rows \(batch\[0\] \(4, 2\), batch\[1\] \(11, 6\)\)"),
        ([image(), image(9), image(), image()], r"may have 3 or 4 samples"),
        ({"images": [image(), image()]}, r"may have 2 or 3 samples \(batch\['images'\]\[0\] \(3, 8, 9\)"),
        ([{"view": rows(8, (2,))}, {"view": rows(8, (2,))}], "may have 2 or 8 samples"),
        ([(image(), 1), (image(), 2), (image(), 5), (image(), 2)], "may have 3 or 4 samples"),
        (([image(), image()], [target(1)]), "rows"),
        ({"scale": torch.tensor(1.0), "name": "x"}, "no tensor with a first dimension.*samples="),
        (["a sentence", "another one"], "no tensor"),
        ([rows(1 + row) for row in range(9)], r"\(5,\).* and 3 more\)"),
    ],
)
def test_what_cannot_be_known_is_asked_about(batch: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        count_samples(batch)


def test_the_users_function_counts_instead() -> None:
    batch = {"boxes": torch.zeros(11, 4), "images": torch.zeros(4, 3, 8, 8)}
    assert count_samples(batch, lambda batch: len(batch["images"])) == 4
    numpy_count: Any = np.int64(2)
    assert count_samples(["a", "b"], lambda _: numpy_count) == 2


@pytest.mark.parametrize("count", [0, -1, 2.0, True, None])
def test_counts_of_the_user_are_checked(count: Any) -> None:
    with pytest.raises(UsageError, match=f"samples= returned {count}; return the number of samples"):
        count_samples(rows(4), lambda _: count)
