"""What is kept of any object, and what is refused."""

from __future__ import annotations

import array
import collections
import copy
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery import Guard
from oomph.recovery._keepers import ObjectState

from .nets import plain_batch, plain_net


class Slotted:
    __slots__ = ("__hidden", "count", "late")

    def __init__(self) -> None:
        self.count = self.__hidden = 0

    def add(self, samples: int) -> None:
        self.count += samples
        self.__hidden += samples
        self.late = self.__hidden

    def seen(self) -> int:
        return self.__hidden


class Meter:
    def __init__(self) -> None:
        self.inner = SimpleNamespace(count=0)
        self.slotted = Slotted()


class Score(nn.Module):
    """A metric that is a module and counts in plain attributes, as torchmetrics' do."""

    def __init__(self) -> None:
        super().__init__()
        self.hits = torch.zeros(())
        self.seen: list[int] = []


class Bag(dict[str, int]):
    """A dictionary with an attribute."""

    total = 0


def add_to_score(metric: Any, samples: int) -> None:
    metric["a"].hits = metric["a"].hits + samples
    metric["a"].seen.append(samples)


def add_to_meter(metric: Meter, samples: int) -> None:
    metric.inner.count += samples
    metric.slotted.add(samples)


def add_to_bag(metric: Bag, samples: int) -> None:
    metric["n"] = metric.get("n", 0) + samples
    metric.total += samples


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any, int], object], Callable[[Any], object]]] = {
    "array": (lambda: np.zeros(2), lambda m, n: m.__iadd__(n), lambda m: m.tolist()),
    "array in an object": (
        lambda: SimpleNamespace(m=np.zeros(2)),
        lambda o, n: o.m.__iadd__(n),
        lambda o: o.m.tolist(),
    ),
    "tuple of tensors": (lambda: (torch.zeros(()),), lambda m, n: m[0].add_(n), lambda m: m[0].item()),
    "deque": (lambda: SimpleNamespace(m=collections.deque()), lambda o, n: o.m.append(n), lambda o: sum(o.m)),
    "array of Python's": (lambda: array.array("i", [0]), lambda m, n: m.append(n), sum),
    "counter": (collections.Counter, lambda m, n: m.update(n=n), dict),
    "container with attributes": (Bag, add_to_bag, lambda m: (m.total, dict(m))),
    "objects in an object": (Meter, add_to_meter, lambda m: (m.inner.count, m.slotted.count, m.slotted.seen())),
    "slots": (Slotted, Slotted.add, lambda m: (m.count, m.seen(), m.late)),
    "modules in a module": (
        lambda: nn.ModuleDict({"a": Score()}),
        add_to_score,
        lambda m: (m["a"].hits.item(), sum(m["a"].seen)),
    ),
}


def guarded(keep: Any, forward: Callable[..., Any]) -> Guard:
    net = plain_net()
    return oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), forward=forward, keep=keep)


def short_once(use: Callable[[Any], object]) -> Callable[[nn.Module, Any], Tensor]:
    """A forward that runs short after it has used something, once."""
    faults = [MemoryError()]

    def forward(model: nn.Module, piece: Any) -> Tensor:
        use(piece)
        if faults:
            raise faults.pop()
        return nn.functional.mse_loss(model(piece[0]), piece[1])

    return forward


@pytest.mark.parametrize("case", CASES)
def test_a_retry_counts_nothing_twice(case: str) -> None:
    make, add, read = CASES[case]
    metric, expected = make(), make()
    guard = guarded([metric], short_once(lambda piece: add(metric, len(piece[0]))))
    assert guard.step(plain_batch(8)).pieces == 2
    add(expected, 4)
    add(expected, 4)
    assert read(metric) == read(expected)


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: torch.Generator().manual_seed(0), lambda one: torch.rand((), generator=one).item()),
        (lambda: np.random.default_rng(0), lambda one: one.random()),
        (lambda: np.random.RandomState(0), lambda one: one.random_sample()),
        (lambda: random.Random(0), lambda one: one.random()),  # noqa: S311  no secrets
    ],
)
def test_a_retry_draws_the_same_numbers(make: Callable[[], Any], draw: Callable[[Any], float]) -> None:
    drawn: list[float] = []
    holder = SimpleNamespace(generator=make())
    guarded(holder, short_once(lambda piece: drawn.append(draw(holder.generator)))).step(plain_batch(8))
    expected = make()
    assert drawn[1:] == [draw(expected), draw(expected)]


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        (7, "keep has a int, of which nothing can be put back"),
        (plain_batch, "keep has a function"),
        (iter([1]), "keep has a list_iterator, and how far"),
        (SimpleNamespace(ids=itertools.count()), "SimpleNamespace with a count in it"),
        ([[[number] for number in range(20_000)]], "more than 10,000 things"),
    ],
)
def test_what_cannot_be_kept_is_refused(keep: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        guarded(keep, short_once(lambda piece: None))


def test_a_collection_of_metrics_is_one_object() -> None:
    metrics = nn.ModuleDict({"a": Score()})
    assert guarded(metrics, short_once(lambda piece: None)).options.keep == (metrics,)


def test_the_model_that_an_object_holds_is_not_put_back() -> None:
    """Whoever guards the model keeps of it what must be kept; weights that were updated must stay so."""
    model = plain_net()
    holder = SimpleNamespace(model=model, count=0)
    state = ObjectState(holder, but=[model])
    state.take()
    holder.count = 1
    changed = copy.deepcopy(model.state_dict())
    for one in model.parameters():
        one.data.add_(1)
    state.put_back()
    assert holder.count == 0
    assert all(torch.equal(one, changed[name] + 1) for name, one in model.state_dict().items())


def test_an_average_in_a_tuple_is_applied_once() -> None:
    faults: list[MemoryError] = []

    class Average:
        def __init__(self, model: nn.Module) -> None:
            self.shadow = tuple(one.detach().clone() for one in model.parameters())

        def update(self, model: nn.Module) -> None:
            for one, other in zip(self.shadow, model.parameters(), strict=True):
                one.lerp_(other.detach(), 0.5)
                if faults:
                    raise faults.pop()

    def run() -> tuple[int, tuple[Tensor, ...]]:
        net = plain_net()
        average = Average(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, ema=average)
        return guard.step(plain_batch()).retries, average.shadow

    _, expected = run()
    faults.append(MemoryError())
    retries, found = run()
    assert retries == 1
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
