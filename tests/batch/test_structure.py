"""Any nesting is walked, moved and rebuilt with its own types."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from oomph.batch import map_tensors, move, tensors_in, write_versions
from oomph.errors import UsageError

from .nested_batches import are_equal, nested_batches, rows

CPU, META = torch.device("cpu"), torch.device("meta")


class Pair(NamedTuple):
    inputs: Tensor
    targets: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    images: Tensor
    count: int = field(init=False, default=7)


@dataclass
class Converting:
    images: Any

    def __post_init__(self) -> None:
        self.images = torch.as_tensor(self.images).float()


@dataclass
class ModelOutput(OrderedDict[str, Any]):
    """As transformers has it: a dataclass and a mapping, in which fields that are None have no key."""

    loss: Any = None
    logits: Any = None
    cache: Any = None

    def __post_init__(self) -> None:
        for name in ("loss", "logits", "cache"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)


class Encoding(UserDict[str, Any]):
    """As a tokenizer returns it: a mapping that is no dict and has more than its entries."""

    def __init__(self, data: dict[str, Any], encodings: list[str]) -> None:
        super().__init__(data)
        self.encodings = encodings


class Unbuildable(list[Any]):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__([first, second])


@settings(max_examples=30, deadline=None)
@given(data=st.data(), samples=st.integers(1, 5))
def test_moving_copies_containers_and_keeps_their_types(data: st.DataObject, samples: int) -> None:
    batch = data.draw(nested_batches(samples))
    moved = move(batch, CPU)
    assert moved is not batch
    assert are_equal(moved, batch)
    assert all(after is before for after, before in zip(tensors_in(moved), tensors_in(batch), strict=True))
    on_meta = list(tensors_in(move(batch, META)))
    assert {tensor.device for tensor in on_meta} == {META}
    assert [tensor.shape for tensor in on_meta] == [tensor.shape for tensor in tensors_in(batch)]


def test_lists_of_a_moved_batch_are_copies() -> None:
    batch = {"names": ["a.jpg", "b.jpg"]}
    move(batch, CPU)["names"].pop()
    assert len(batch["names"]) == 2


def test_mappings_keep_what_they_have_beside_their_entries() -> None:
    factory: defaultdict[str, Any] = defaultdict(list, {"images": rows(2)})
    moved = move(factory, META)
    assert type(moved) is defaultdict
    assert moved["missing"] == []
    assert "missing" not in factory
    encoding = Encoding({"ids": rows(2)}, ["first", "second"])
    moved = move(encoding, META)
    assert type(moved) is Encoding
    assert moved.encodings == ["first", "second"]
    assert (moved["ids"].device, encoding["ids"].device) == (META, CPU)
    assert type(move(MappingProxyType({"ids": rows(2)}), CPU)) is dict


def test_model_outputs_are_rebuilt_with_keys_and_attributes_in_step() -> None:
    moved = move(ModelOutput(logits=rows(2)), META)
    assert type(moved) is ModelOutput
    assert list(moved) == ["logits"]
    assert moved.logits is moved["logits"]
    assert moved.logits.device == META
    assert moved.loss is None


def test_dataclasses_are_copied_without_their_constructor() -> None:
    frozen = Frozen(rows(2))
    moved = move(frozen, META)
    assert type(moved) is Frozen
    assert (moved.images.device, moved.count, frozen.images.device) == (META, 7, CPU)
    assert map_tensors(Converting([1, 2]), lambda _: "text").images == "text"


def test_packed_sequences_keep_their_lengths_on_the_cpu() -> None:
    packed = pack_sequence([torch.zeros(3), torch.zeros(2)])
    moved = move((packed, 1), META)[0]
    assert (moved.data.device, moved.batch_sizes.device) == (META, CPU)
    assert len(list(tensors_in(packed))) == 2


def test_named_tuples_and_results_of_torch_keep_their_types() -> None:
    best = torch.zeros(2, 3).max(dim=1)
    assert type(move(best, META)) is type(best)
    assert type(move(Pair(rows(2), [rows(2)]), META)) is Pair
    assert move(torch.Size([2, 3]), META) == torch.Size([2, 3])


def test_types_that_cannot_be_rebuilt_are_named() -> None:
    with pytest.raises(UsageError, match="a Unbuildable can't be rebuilt with other values"):
        move(Unbuildable(rows(2), rows(2)), CPU)


def test_write_versions_change_with_every_tensor_of_a_batch() -> None:
    batch = {"pair": Pair(rows(3), [rows(3), (rows(3),)]), "record": Frozen(rows(3))}
    for tensor in tensors_in(batch):
        before = write_versions(batch)
        assert write_versions(batch) == before
        tensor.add_(1)
        assert write_versions(batch) != before
    with torch.inference_mode():
        assert write_versions(torch.zeros(2)) == []
