"""Batches of any structure are split into micro-batches that share their memory."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import oomph
from oomph.batch import count_samples, micro_batch_sizes, split_batch, split_samples, tensors_in
from oomph.batch._samples import rows_of
from oomph.errors import UsageError

from .nested_batches import SIZE, Labels, Pair, Record, are_equal, nested_batches, rows
from .test_samples import image, target


@given(samples=st.integers(1, 40), data=st.data())
def test_sizes_differ_by_at_most_one_and_larger_ones_come_first(samples: int, data: st.DataObject) -> None:
    sizes = micro_batch_sizes(samples, data.draw(st.integers(1, samples)))
    assert sum(sizes) == samples
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def is_partition(parts: list[Any], original: Any, samples: int) -> bool:
    """Return True if each sample is in one part, in order and uncopied, and everything else in every part."""
    if isinstance(original, torch.Tensor) and original.dim():
        storage = original.untyped_storage().data_ptr()
        is_shared = all(part.untyped_storage().data_ptr() == storage for part in parts)
        return is_shared and are_equal(torch.cat(parts), original)
    if isinstance(original, np.ndarray):
        is_shared = all(np.shares_memory(part, original) for part in parts)
        return is_shared and are_equal(np.concatenate(parts), original)
    if isinstance(original, dict):
        columns = [([part[name] for part in parts], value) for name, value in original.items()]
    elif isinstance(original, Pair | Record | Labels):
        names = original._fields if isinstance(original, Pair) else [field.name for field in fields(original)]
        columns = [([getattr(part, name) for part in parts], getattr(original, name)) for name in names]
    elif isinstance(original, list) and len(original) == 2 and rows_of(original[0]) == samples:
        columns = [([part[index] for part in parts], value) for index, value in enumerate(original)]
    elif isinstance(original, list | tuple) and original != SIZE:
        return are_equal(type(original)(item for part in parts for item in part), original)
    else:
        return all(part is original for part in parts)
    return all(type(part) is type(original) for part in parts) and all(
        is_partition(*column, samples) for column in columns
    )


@settings(max_examples=30, deadline=None)
@given(data=st.data(), samples=st.integers(1, 9))
def test_every_sample_goes_into_one_micro_batch_without_a_copy(data: st.DataObject, samples: int) -> None:
    batch = data.draw(nested_batches(samples))
    parts = split_batch(batch, data.draw(st.integers(1, samples)))
    assert is_partition(parts, batch, samples)
    sizes = [len(part["inputs"]) for part in parts]
    assert sizes == micro_batch_sizes(samples, len(parts))
    assert [count_samples(part, lambda part: len(part["inputs"])) for part in parts] == sizes


def test_micro_batches_share_the_memory_of_the_batch() -> None:
    batch = torch.zeros(4, 2)
    first, _ = split_batch(batch, 2)
    first += 1
    assert batch.sum() == 4
    assert split_batch(batch, 1)[0] is batch


def test_split_batch_is_exported_at_the_root() -> None:
    assert oomph.split_batch is split_batch


@pytest.mark.parametrize("micro_batches", [0, 5])
def test_too_many_micro_batches_are_rejected(micro_batches: int) -> None:
    with pytest.raises(UsageError, match=f"4 samples can't be split into {micro_batches} micro-batches"):
        split_samples(torch.zeros(4), 4, micro_batches)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("count", [2, 3, 5])  # three images have as many channels
def test_detection_batches_are_split_by_images(kind: Any, count: int) -> None:
    images, targets = kind(image(8 + row) for row in range(count)), kind(target(row) for row in range(count))
    for batch in ((images, targets), {"images": images, "targets": targets}):
        parts = [tuple(part.values()) if isinstance(part, dict) else part for part in split_batch(batch, 2)]
        assert all(type(part[0]) is kind and len(part[0]) == len(part[1]) for part in parts)
        assert [item for part in parts for item in part[0]] == list(images)
        assert [len(item["boxes"]) for part in parts for item in part[1]] == list(range(count))


def test_tensors_of_another_length_are_shared_if_the_user_counts() -> None:
    weights, sizes = torch.ones(7), [rows(3, (2,)), rows(5, (2,))]
    batch = {"images": rows(4), "class_weights": weights, "anchors": sizes, "table": np.zeros(3)}
    for part in split_samples(batch, 4, 2):
        assert len(part["images"]) == 2
        assert part["class_weights"] is weights
        assert part["anchors"] is sizes
        assert len(part["table"]) == 3
    with pytest.raises(UsageError, match=r"nothing in the batch has 6 rows or items \(batch\['images'\] \(4,\)"):
        split_samples(batch, 6, 2)
    with pytest.raises(UsageError, match=r"nothing in the batch has 6 rows or items \(no tensors\)"):
        split_samples("a sentence", 6, 2)


@pytest.mark.parametrize(
    ("value", "is_cut"),
    [
        (["a.jpg", "b.jpg"], True),
        ([3, 5], True),
        ([[480, 640], [512, 512]], True),
        ([{"id": 3}, {"id": 5}], True),
        ([torch.tensor(1.0), torch.tensor(2.0)], True),
        (("a.jpg", "b.jpg"), True),
        (({"id": 3}, {"id": 5}), True),
        (([1, 2, 3], [4]), True),
        ((480, 640), False),  # one size for all images
        (((0.5, 0.5), (0, 4)), False),
        (["a.jpg", "b.jpg", "c.jpg"], False),
        ("ab", False),
        (torch.Size([480, 640]), False),
        ({"x": 1, "y": 2}, False),
    ],
)
def test_lists_of_plain_values(value: Any, is_cut: bool) -> None:  # noqa: FBT001  a table's column
    first, second = (part["value"] for part in split_batch({"x": rows(2), "value": value}, 2))
    if is_cut:
        assert type(first) is type(value)
        assert (first[0], second[0], len(first), len(second)) == (value[0], value[1], 1, 1)
    else:
        assert first is value
        assert second is value


def test_names_collated_in_columns_are_cut_inside() -> None:
    names = [("a", "b", "c"), ("d", "e", "f")]
    first, second = split_batch({"x": rows(3), "names": names}, 2)
    assert first["names"] == [("a", "b"), ("d", "e")]
    assert second["names"] == [("c",), ("f",)]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (([image()] * 3, rows(3)), r"batch\[0\] has 3 items and the batch 3 samples.*\(batch\[0\]\[0\] \(3, 8, 9\)"),
        ({"x": rows(2), "names": [("a", "b"), ("c", "d")]}, r"batch\['names'\] has 2 items .* samples or fields; "),
        ({"x": rows(5), "y": [rows(5)] * 5}, r"batch\['y'\] has 5 items"),
        ({"x": rows(6), "labels": tuple(range(6))}, r"batch\['labels'\] has 6 items"),
        ({"x": rows(2), "y": SimpleNamespace(boxes=rows(2))}, r"batch\['y'\] is a SimpleNamespace, which oomph can't"),
        ((pack_sequence([rows(1)]), rows(1)), None),
    ],
)
def test_lists_and_objects_that_cannot_be_split_are_named(batch: Any, message: str | None) -> None:
    if message is None:
        with pytest.raises(UsageError, match=r"batch\[0\] is a PackedSequence, which oomph can't split"):
            split_samples((pack_sequence([rows(3), rows(2)]), rows(2)), 2, 2)
        return
    with pytest.raises(UsageError, match=message):
        split_batch(batch, 2)


def test_fields_of_two_samples_are_not_taken_for_samples() -> None:
    first, _ = split_batch([(rows(2, (4,)), rows(2, (4,))), rows(2)], 2)
    assert [tuple(tensor.shape) for tensor in tensors_in(first)] == [(1, 4), (1, 4), (1,)]
    first, _ = split_batch([rows(2, (4,)), rows(2, (4,))], 2)
    assert [tuple(tensor.shape) for tensor in first] == [(1, 4), (1, 4)]


def test_objects_without_tensors_go_into_every_micro_batch() -> None:
    config, layer = SimpleNamespace(size=2), nn.Linear(2, 2)
    for part in split_batch((rows(2), config, layer), 2):
        assert part[1:] == (config, layer)
