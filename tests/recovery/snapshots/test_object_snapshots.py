"""Objects that a step changes: metrics, EMAs, generators. A retry restores them, or the guard rejects them."""

from __future__ import annotations

import collections
import copy
import operator
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery.snapshots._object_snapshots import ObjectSnapshot

from ..faults import FailingCall, failing_forward, in_split_check
from ..nets import cloned, guard_of, plain_batch, plain_guard, plain_net


class Slotted:
    __slots__ = ("__private", "count")

    def __init__(self) -> None:
        self.count = self.__private = 0

    def add(self, samples: int) -> None:
        self.count += samples
        self.__private += samples

    def counts(self) -> tuple[int, ...]:
        return self.count, self.__private


class SlottedMeter(Slotted):
    """Has attributes in slots, one of which is empty at first, and no others."""

    __slots__ = ("history",)

    def add(self, samples: int) -> None:
        super().add(samples)
        self.history = [*getattr(self, "history", []), samples]

    def counts(self) -> tuple[int, ...]:
        return *super().counts(), *self.history


class Meter:
    """Has other objects as attributes."""

    def __init__(self) -> None:
        self.inner = SimpleNamespace(count=0)
        self.slotted = SlottedMeter()

    def add(self, samples: int) -> None:
        self.inner.count += samples
        self.slotted.count += samples


class Score(nn.Module):
    """A metric that is a module and counts in plain attributes, as those of torchmetrics."""

    def __init__(self) -> None:
        super().__init__()
        self.hits = torch.zeros(())
        self.seen: list[int] = []

    def add(self, samples: int) -> None:
        self.hits = self.hits + samples
        self.seen.append(samples)


class ListMetric(nn.Module):
    """Collects tensors in a list and numbers in a deque, and has a buffer and a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Tensor] = []
        self.recent: collections.deque[int] = collections.deque(maxlen=3)
        self.register_buffer("seen", torch.zeros(()))
        self.seen: Tensor
        self.score = Score()

    def add(self, samples: int) -> None:
        self.values.append(torch.tensor(samples))
        self.recent.append(samples)
        self.seen += samples
        self.score.add(samples)

    def total(self) -> tuple[float, ...]:
        return sum(map(float, self.values)), sum(self.recent), float(self.seen), float(self.score.hits)


class CountingDict(dict[str, int]):
    """A container with an attribute."""

    total = 0

    def add(self, samples: int) -> None:
        self["n"] = self.get("n", 0) + samples
        self.total += samples


class WithStateDict:
    """Its attributes can't be copied, but it has a state_dict()."""

    def __init__(self) -> None:
        self.lock, self.count = threading.Lock(), 0

    def add(self, samples: int) -> None:
        self.count += samples

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any, int], object], Callable[[Any], object]]] = {
    "array": (lambda: SimpleNamespace(m=np.zeros(2)), lambda o, n: o.m.__iadd__(n), lambda o: o.m.tolist()),
    "tensor": (lambda: torch.zeros(()), lambda m, n: m.add_(n), lambda m: m.item()),
    "tuple of tensors": (
        lambda: SimpleNamespace(m=(torch.zeros(()),)),
        lambda o, n: o.m[0].add_(n),
        lambda o: o.m[0].item(),
    ),
    "list": (list, lambda m, n: m.append(n), sum),
    "set": (lambda: {1}, lambda m, n: m.add(n + len(m)), sorted),
    "deque": (lambda: collections.deque(maxlen=3), lambda m, n: m.append(n), list),
    "deque in an object": (
        lambda: SimpleNamespace(m=collections.deque()),
        lambda o, n: o.m.append(n),
        lambda o: [*o.m],
    ),
    "counter": (collections.Counter, lambda m, n: m.update(n=n), dict),
    "container with attributes": (CountingDict, CountingDict.add, lambda m: (m.total, dict(m))),
    "objects in an object": (Meter, Meter.add, lambda m: (m.inner.count, m.slotted.count)),
    "object with slots": (SlottedMeter, SlottedMeter.add, SlottedMeter.counts),
    "module with a list of tensors": (ListMetric, ListMetric.add, ListMetric.total),
    "modules in a module": (
        lambda: nn.ModuleDict({"a": Score()}),
        lambda m, n: m["a"].add(n),
        lambda m: (m["a"].hits.item(), sum(m["a"].seen)),
    ),
    "state_dict": (WithStateDict, WithStateDict.add, lambda m: m.count),
}


def failing_once(use: Callable[[Any], object]) -> Callable[[nn.Module, Any], Tensor]:
    """Return a forward that runs out of memory once, after it used an object."""
    fail = FailingCall(lambda: None)

    def forward(model: nn.Module, batch: Any) -> Tensor:
        use(batch)
        fail()
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    return forward


@pytest.mark.parametrize("case", CASES)
def test_a_retry_counts_nothing_twice(case: str) -> None:
    create, add, read = CASES[case]
    metric, expected = create(), create()
    forward = failing_once(lambda batch: add(metric, len(batch[0])))
    guard = guard_of(plain_net(), forward=forward, extra_state=[metric])
    assert guard.step(plain_batch(8)).micro_batches == 2
    add(expected, 4)
    add(expected, 4)
    assert read(metric) == read(expected)


GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {
    "torch": (lambda: torch.Generator().manual_seed(0), lambda generator: torch.rand((), generator=generator).item()),
    "python": (lambda: random.Random(0), lambda generator: generator.random()),  # noqa: S311  no secrets
    "numpy": (lambda: np.random.default_rng(0), lambda generator: generator.random()),
    "numpy, legacy": (lambda: np.random.RandomState(0), lambda generator: generator.random_sample()),
}


def note(numbers: list[Any], number: Any) -> None:
    """Keep a number unless the split check drew it."""
    if not in_split_check():
        numbers.append(number)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_retry_draws_the_same_numbers(name: str) -> None:
    create, draw = GENERATORS[name]
    owner, expected = SimpleNamespace(generator=create()), create()
    numbers: list[Any] = []
    forward = failing_once(lambda _: note(numbers, draw(owner.generator)))
    guard_of(plain_net(), forward=forward, extra_state=owner).step(plain_batch(8))
    assert numbers[1:] == [draw(expected), draw(expected)]


@pytest.mark.parametrize("name", ["torch", "python"])
def test_a_generator_can_be_extra_state_by_itself(name: str) -> None:
    create, draw = GENERATORS[name]
    generator, expected = create(), create()
    numbers: list[Any] = []
    forward = failing_once(lambda _: note(numbers, draw(generator)))
    guard_of(plain_net(), forward=forward, extra_state=generator).step(plain_batch(8))
    assert numbers[1:] == [draw(expected), draw(expected)]


@pytest.mark.parametrize(
    ("extra_state", "message"),
    [
        (7, "extra_state has a int without any state that can be saved"),
        (plain_batch, "extra_state has a function without any state"),
        (iter([1]), "extra_state has a list_iterator without any state"),
        (object(), "extra_state has a object without any state"),
        (np.zeros(2), "extra_state has a ndarray without any state"),
        (np.random.default_rng(0), "extra_state has a Generator without any state"),
        (SimpleNamespace(lines=(line for line in "ab")), r"a SimpleNamespace that can't be copied \(TypeError"),
        ([threading.Lock()], "lock"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_that_cannot_be_restored_are_rejected(extra_state: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        guard_of(plain_net(), extra_state=extra_state)


def test_a_collection_of_metrics_is_one_object() -> None:
    metrics = nn.ModuleDict({"a": Score()})
    assert guard_of(plain_net(), extra_state=metrics).config.extra_state == (metrics,)


@pytest.mark.parametrize("nested", [False, True])
def test_references_to_the_model_and_its_parameters_are_kept(*, nested: bool) -> None:
    """An update that succeeded must stay, and an EMA must go on reading the weights that are trained."""
    model = plain_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attributes = {
        "model": model,
        "head": model[2],
        "weight": model.get_parameter("0.weight"),
        "weights": list(model.parameters()),
        "layers": [*model],
        "optimizer": optimizer,
    }
    owner = SimpleNamespace(count=0, inner=SimpleNamespace(**attributes) if nested else attributes)
    if not nested:
        vars(owner).update(attributes)
    restore = ObjectSnapshot(owner, exclude=[model, optimizer]).capture()
    owner.count = 1
    before = cloned(dict(model.state_dict()))
    for param in model.parameters():
        param.data.add_(1)
    restore()
    assert owner.count == 0
    assert all(torch.equal(value, before[name] + 1) for name, value in model.state_dict().items())
    inner = owner.inner if nested else owner
    assert inner.model is model
    assert inner.weight is model.get_parameter("0.weight")
    assert inner.optimizer is optimizer
    assert list(map(id, inner.weights)) == list(map(id, model.parameters()))
    assert list(map(id, inner.layers)) == list(map(id, model))


def test_a_guard_accepts_extra_state_that_holds_its_model() -> None:
    """The model is not copied: one with non-leaf tensors could not be."""
    net = plain_net()
    net.register_buffer("scale", torch.ones(1, requires_grad=True) * 2)
    owner = SimpleNamespace(inner=SimpleNamespace(model=net), count=0)
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(net)
    guard_of(net, extra_state=owner)


class ListEma:
    """Keeps references to the trained parameters, and its averages in a tuple."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = list(model.parameters())
        self.averages = tuple(param.detach().clone() for param in self.weights)
        self.updates = iter(range(100))

    def update(self, model: nn.Module) -> None:
        del model
        next(self.updates)
        for average, param in zip(self.averages, self.weights, strict=True):
            average.lerp_(param.detach(), 0.5)
            self.fail()

    def fail(self) -> None:
        """Run out of memory, in tests that replace this."""


@pytest.mark.parametrize("call", [1, 2, 6])
def test_an_ema_is_updated_once_and_keeps_its_references(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(fail: FailingCall) -> tuple[list[int], ListEma]:
        monkeypatch.setattr(ListEma, "fail", lambda _: fail())
        net = plain_net()
        ema = ListEma(net)
        guard = guard_of(net, ema=ema)
        return [guard.step(plain_batch(seed=seed)).retries for seed in range(3)], ema

    _, expected = run(FailingCall(lambda: None, 0))
    retries, ema = run(FailingCall(lambda: None, call))
    assert sum(retries) == 1
    assert all(map(torch.equal, ema.averages, expected.averages))
    assert all(map(torch.equal, ema.weights, expected.weights))


def test_a_transaction_restores_any_object() -> None:
    metric = Meter()

    def work() -> None:
        metric.add(5)
        raise MemoryError

    assert oomph.Transaction(metric).run(work) is not None
    assert (metric.inner.count, metric.slotted.count) == (0, 0)


class Alias:
    """Two attributes that are the same list, and a scheduler of the run."""

    def __init__(self, scheduler: Any) -> None:
        self.values: list[int] = []
        self.alias, self.scheduler = self.values, scheduler


def test_restored_attributes_stay_the_same_objects() -> None:
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    metric = Alias(scheduler)
    fail = FailingCall(lambda: None)

    def forward(model: nn.Module, batch: Any) -> Tensor:
        metric.values.append(len(batch[0]))
        fail()
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    guard = guard_of(net, optimizer=optimizer, scheduler=scheduler, forward=forward, extra_state=metric)
    assert guard.step(plain_batch()).retries == 1
    assert metric.values is metric.alias
    assert metric.scheduler is scheduler
    assert sum(metric.values) == 8


class CollectingNet(nn.Module):
    """Collects what it sees in containers, in a submodule too, and has a list that it shares with the submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 2), Score())
        self.norm = nn.BatchNorm1d(4)
        self.history: dict[str, list[int]] = {"samples": []}
        self.seen = self.score.seen
        self.weights, self.children_by_name = list(self.parameters()), {"score": self.score}

    @property
    def score(self) -> Score:
        score = self.layers[1]
        assert isinstance(score, Score)
        return score

    def forward(self, x: Tensor) -> Tensor:
        self.history["samples"].append(len(x))
        self.score.add(len(x))
        outputs: Tensor = self.layers[0](self.norm(x))
        return outputs


@pytest.mark.parametrize("part", ["model", "part of the model"])
def test_the_model_itself_can_be_extra_state(part: str) -> None:
    net = CollectingNet()
    weights = list(net.parameters())
    extra = net if part == "model" else net.layers
    guard = guard_of(net, forward=failing_forward(2), extra_state=[extra])
    assert [guard.step(plain_batch(seed=seed)).micro_batches for seed in range(2)] == [1, 2]
    assert net.score.seen == [8, 4, 4]
    assert net.score.hits == 16
    assert list(map(id, net.parameters())) == list(map(id, weights))
    assert int(net.norm.num_batches_tracked or 0) == 3
    if extra is net:
        assert net.history == {"samples": [8, 4, 4]}
        assert net.seen is net.score.seen
        assert all(map(operator.is_, net.weights, weights))
        assert net.children_by_name["score"] is net.score


def test_a_transaction_restores_the_containers_of_its_model() -> None:
    """Neither weights nor buffers are copied: other snapshots restore them, or an update has changed them."""
    net = CollectingNet()
    restore = ObjectSnapshot(net, exclude=[net]).capture()
    weights = cloned(dict(net.state_dict()))
    for value in net.state_dict().values():
        value.add_(1)
    net(plain_batch()[0])
    vars(net)["late"] = "new"
    restore()
    assert net.history == {"samples": []}
    assert not hasattr(net, "late")
    assert torch.equal(net.layers.get_parameter("0.weight"), weights["layers.0.weight"] + 1)
    assert net.norm.num_batches_tracked == 2


def test_an_empty_list_as_extra_state_is_rejected() -> None:
    with pytest.raises(UsageError, match="extra_state is an empty list; if the list is the state, pass it in a tuple"):
        plain_guard(extra_state=[])
