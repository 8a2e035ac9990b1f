"""Outputs of micro-batches are joined into those of the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oomph.batch import join_outputs, map_tensors, micro_batch_sizes, split_batch, tensors_in
from oomph.errors import UsageError

from .nested_batches import Pair, Record, are_equal, nested_batches, rows
from .test_samples import target
from .test_structure import ModelOutput


class Cache:
    """An object that grows with the batch and can't be joined, as a transformers Cache."""


@settings(max_examples=30, deadline=None)
@given(data=st.data(), samples=st.integers(1, 9))
def test_joining_the_parts_gives_the_batch(data: st.DataObject, samples: int) -> None:
    batch = data.draw(nested_batches(samples))
    micro_batches = data.draw(st.integers(1, samples))
    sizes = micro_batch_sizes(samples, micro_batches)
    parts = split_batch(batch, micro_batches)
    assert are_equal(join_outputs(parts, sizes), batch)


def test_gradients_reach_the_parts_through_the_joined_outputs() -> None:
    weights, scale = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), torch.tensor(2.0, requires_grad=True)
    leaves = [torch.ones(size, requires_grad=True) for size in (3, 2)]
    scales = [scale, scale.detach().clone().requires_grad_()]
    parts = [ModelOutput(logits=leaf, loss=value) for leaf, value in zip(leaves, scales, strict=True)]
    joined = join_outputs(parts, [3, 2])
    assert type(joined) is ModelOutput
    (joined.loss * (joined.logits * weights).sum()).backward()
    assert [leaf.grad.tolist() for leaf in leaves if leaf.grad is not None] == [[2.0, 4.0, 6.0], [8.0, 10.0]]
    assert float(scale.grad or 0) == 15.0
    assert scales[1].grad is None  # the first part's is used, once


def test_values_that_do_not_lie_along_the_batch_are_used_once() -> None:
    nan = torch.tensor([float("nan")])
    parts = [
        {"x": rows(size), "scale": torch.ones(1), "nan": nan.clone(), "t": 0.5, "text": "a", "none": None, "c": Cache()}
        for size in (3, 2)
    ]
    joined = join_outputs(parts, [3, 2])
    assert joined["scale"] is parts[0]["scale"]
    assert joined["nan"] is parts[0]["nan"]
    assert (joined["t"], joined["text"], joined["none"], joined["c"]) == (0.5, "a", None, None)
    cache = Cache()
    assert join_outputs([(rows(3), cache), (rows(2), cache)], [3, 2])[1] is cache
    assert join_outputs([parts[0]], [3]) is parts[0]


def test_a_model_output_loses_the_field_that_cannot_be_joined() -> None:
    joined = join_outputs([ModelOutput(logits=rows(size), cache=Cache()) for size in (3, 2)], [3, 2])
    assert list(joined) == ["logits"]
    assert joined.cache is None


@pytest.mark.parametrize("sizes", [[3, 2], [2, 2], [1, 1, 1]])
def test_lists_with_an_item_per_sample_are_concatenated(sizes: list[int]) -> None:
    parts = [
        {
            "boxes": [target(5 + row) for row in range(size)],
            "names": [f"{size}" for _ in range(size)],
            "levels": [rows(size, (4, 4)), rows(size, (2, 2)), rows(size, (1, 1))],
            "pair": Pair(rows(size), rows(size, (2,))),
            "array": np.arange(size),
        }
        for size in sizes
    ]
    joined = join_outputs(parts, sizes)
    samples = sum(sizes)
    assert [len(joined["boxes"]), len(joined["names"]), len(joined["levels"])] == [samples, samples, 3]
    assert [tuple(level.shape) for level in joined["levels"]] == [(samples, 4, 4), (samples, 2, 2), (samples, 1, 1)]
    assert isinstance(joined["pair"], Pair)
    assert (len(joined["pair"].targets), len(joined["array"])) == (samples, samples)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"s": torch.ones(())}, {"s": torch.zeros(())}, r"outputs\['s'\] has shapes \(\) and \(\).*does not lie along"),
        (rows(6), rows(4), r"outputs has shapes \(6,\) and \(4,\) in micro-batches of 3 and 2 samples"),
        (rows(3, (4,)), rows(2, (5,)), r"\(3, 4\) and \(2, 5\)"),
        (rows(3), rows(2, dtype=torch.float64), "does not lie along"),
        (Record(rows(3), 1), Record(rows(2), 2), r"outputs\.note is 1 and 2 in different micro-batches"),
        ({"x": rows(3)}, {"y": rows(2)}, "outputs differs between micro-batches"),
        ({"x": rows(3)}, [rows(2)], "outputs differs between micro-batches: 'dict' and 'list'"),
        ((rows(3),), (rows(2), rows(2)), "'1 items' and '2 items'"),
        ({"x": rows(3)}, {"x": None}, r"outputs\['x'\] differs between micro-batches: 'Tensor' and 'NoneType'"),
        ({"x": None}, {"x": rows(2)}, r"outputs\['x'\] is None and "),
    ],
)
def test_parts_that_do_not_fit_together_are_named(first: Any, second: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        join_outputs([first, second], [3, 2])


def test_lists_that_can_be_read_in_two_ways_are_rejected() -> None:
    images = [torch.zeros(3, 4, 4)] * 3
    with pytest.raises(UsageError, match="outputs has as many items as samples in every micro-batch"):
        join_outputs([images, images], [3, 3])
    assert len(join_outputs([images, images[:2]], [3, 2])) == 5  # another size tells them apart


def test_tensors_of_a_micro_batch_match_those_of_a_second_pass() -> None:
    outputs = {"logits": rows(4), "hidden": (rows(4, (2,)), {"scale": torch.ones(1)}), "cache": Cache()}
    shapes = [tuple(tensor.shape) for tensor in tensors_in(outputs)]
    assert shapes == [(4,), (4, 2), (1,)]
    assert [tuple(tensor.shape) for tensor in tensors_in(map_tensors(outputs, Tensor.clone))] == shapes
