"""Batches of any structure are counted, split into micro-batches and moved."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import oomph
from oomph.batch import count_samples, micro_batch_sizes, move, split_batch, split_samples, tensors_in, write_versions
from oomph.errors import UsageError


class Pair(NamedTuple):
    inputs: Tensor
    targets: Any


def nested_batch(samples: int) -> dict[str, Any]:
    rows = torch.arange(samples)
    return {
        "images": rows.float().reshape(-1, 1).expand(-1, 3),
        "pair": Pair(rows, [rows, (rows,)]),
        "names": [f"{row}.jpg" for row in range(samples)],
        "scale": torch.tensor(2.0),
        "task": "detect",
        "empty": [],
        "none": None,
    }


@given(samples=st.integers(1, 40), data=st.data())
def test_sizes_differ_by_at_most_one_and_larger_ones_come_first(samples: int, data: st.DataObject) -> None:
    sizes = micro_batch_sizes(samples, data.draw(st.integers(1, samples)))
    assert sum(sizes) == samples
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(samples=st.integers(3, 20), data=st.data())
def test_a_nested_batch_is_split_in_all_its_parts(samples: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(2, samples))
    parts = split_batch(nested_batch(samples), count)
    assert len(parts) == count
    rows = [int(row) for part in parts for row in part["images"][:, 0]]
    assert rows == list(range(samples))
    assert [name for part in parts for name in part["names"]] == [f"{row}.jpg" for row in rows]
    for part in parts:
        assert type(part["pair"]) is Pair
        assert isinstance(part["pair"].targets[1], tuple)
        assert torch.equal(part["pair"].inputs, part["pair"].targets[0])
        assert torch.equal(part["pair"].inputs, part["pair"].targets[1][0])
        assert (float(part["scale"]), part["task"], part["empty"], part["none"]) == (2.0, "detect", [], None)


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


def test_samples_are_the_rows_that_all_tensors_share() -> None:
    assert count_samples(nested_batch(7)) == 7
    assert count_samples((torch.zeros(4, 2), torch.zeros(11, 6)), ragged=True) == 4
    with pytest.raises(UsageError, match=r"the batch's tensors have 4 and 11 rows.*split="):
        count_samples((torch.zeros(4, 2), torch.zeros(11, 6)))
    with pytest.raises(UsageError, match="the batch has no tensor with a first dimension"):
        count_samples({"scale": torch.tensor(1.0), "name": "x"})


def test_containers_are_copied_and_tensors_in_place_are_not() -> None:
    batch = nested_batch(3)
    moved = move(batch, torch.device("cpu"))
    assert moved is not batch
    assert moved["images"] is batch["images"]
    assert type(moved["pair"]) is Pair
    moved["names"].pop()
    assert len(batch["names"]) == 3
    on_meta = move(batch, torch.device("meta"))
    assert {tensor.device.type for tensor in tensors_in(on_meta)} == {"meta"}


def test_write_versions_change_with_every_tensor_of_a_batch() -> None:
    batch = nested_batch(3)
    before = write_versions(batch)
    assert write_versions(batch) == before
    batch["pair"].targets[1][0].add_(1)
    assert write_versions(batch) != before
    with torch.inference_mode():
        assert write_versions(torch.zeros(2)) == []
