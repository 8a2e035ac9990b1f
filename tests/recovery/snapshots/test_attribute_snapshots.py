"""Attributes of modules that a retry restores: counters, hidden states, running metrics."""

from __future__ import annotations

import collections
import timeit
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from oomph.recovery import Transaction
from oomph.recovery.snapshots._object_snapshots import ModuleAttributeSnapshot, PlainAttributeSnapshot


class Counter(nn.Module):
    """Has attributes of every kind that are state, and changes all of them in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls, self.label, self.is_warm = 0, "cold", False
        self.hidden: Tensor | None = None
        self.metric = torch.zeros(2)
        self.once = 1.0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.label, self.is_warm = "warm", True
        outputs: Tensor = self.linear(x if self.hidden is None else x + self.hidden)
        self.hidden = outputs.detach()
        self.metric += 1
        self.late = self.calls
        if hasattr(self, "once"):
            del self.once
        self.training = False
        return outputs


def state_of(module: nn.Module) -> dict[str, Any]:
    attributes = {name: value for name, value in vars(module).items() if name[0] != "_"}
    return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in attributes.items()}


def fail(work: Any) -> None:
    work()
    raise MemoryError


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_failed_attempt_leaves_no_trace_in_attributes(calls: int) -> None:
    net = nn.Sequential(Counter(), nn.ReLU(), Counter())
    transaction = Transaction.of([ModuleAttributeSnapshot(net)])
    x = torch.ones(2, 4)
    for _ in range(calls):
        assert transaction.run(lambda: net(x)) is None
    for _ in range(2):
        before = [state_of(module) for module in net]
        identities = [id(module.metric) for module in net if isinstance(module, Counter)]
        assert transaction.run(lambda: fail(lambda: (net(x), net(x)))) is not None
        assert [state_of(module) for module in net] == before
        assert [id(module.metric) for module in net if isinstance(module, Counter)] == identities


def test_hooks_parameters_buffers_and_modules_stay() -> None:
    net = Counter()
    restore = ModuleAttributeSnapshot(net).capture()
    weight = net.linear.weight
    handle = net.register_forward_hook(lambda *_: None)
    net.register_buffer("added", torch.ones(()))
    net.extra = nn.Linear(1, 1)
    weight.data.fill_(7)
    restore()
    assert len(net._forward_hooks) == 1
    handle.remove()
    assert set(dict(net.named_buffers())) == {"added"}
    assert isinstance(net.extra, nn.Linear)
    assert net.linear.weight is weight
    assert weight.unique().tolist() == [7]


class Logging(nn.Module):
    """Has lists as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.history, self.other = [1], [1]


def test_contents_of_lists_and_rebinding_are_undone() -> None:
    module = Logging()
    history, other = module.history, module.other
    restore = ModuleAttributeSnapshot(module).capture()
    module.history = [*history, 2]
    module.other.append(2)
    restore()
    assert module.history is history
    assert module.other is other
    assert module.other == [1]


class Collecting(nn.Module):
    """Collects what it sees in containers of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.count = {"samples": 0, "parts": [torch.zeros(1)]}
        self.seen, self.last = {1}, collections.deque([1, 2], maxlen=2)
        self.names = [str(number) for number in range(20_000)]

    def forward(self, x: Tensor) -> Tensor:
        self.count["samples"] += len(x)  # type: ignore[operator]
        self.count["parts"].append(x)  # type: ignore[attr-defined]
        self.count["new"] = 1
        self.seen.add(2)
        self.last.append(3)
        self.names.append("more")
        return x


def test_contents_of_containers_are_restored_in_place() -> None:
    module = Collecting()
    first = module.count["parts"][0]  # type: ignore[index]
    restore = ModuleAttributeSnapshot(module).capture()
    for _ in range(2):
        module(torch.ones(3))
        restore()
        assert list(module.count) == ["samples", "parts"]
        assert module.count["samples"] == 0
        assert module.count["parts"] == [first]
        assert (module.seen, list(module.last), len(module.names)) == ({1}, [1, 2], 20_000)


class WithGraph(nn.Module):
    """Keeps tensors that must not be written to: a graph, an inference tensor, a reference to a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.__dict__["tied"] = self.linear.weight
        self.attached = self.linear(torch.ones(1, 2))
        with torch.inference_mode():
            self.constant = torch.ones(2)


def test_tensors_of_a_graph_are_not_written_to() -> None:
    net = WithGraph()
    restore = ModuleAttributeSnapshot(net).capture()
    attached, net.attached = net.attached, torch.zeros(())
    net.linear.weight.data.fill_(7)
    restore()
    assert net.attached is attached
    assert net.linear.weight.unique().tolist() == [7]
    net.attached.sum().backward()  # torch would reject it after a write


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_modules_that_a_forward_adds_are_restored(failures: int) -> None:
    net = nn.Sequential(Counter())
    transaction = Transaction.of([ModuleAttributeSnapshot(net)])
    for _ in range(failures):
        transaction.run(lambda: fail(lambda: None))
    transaction.run(lambda: net.append(Counter()))
    added = net[1]
    assert isinstance(added, Counter)
    transaction.run(lambda: fail(lambda: net(torch.ones(1, 4))))
    assert added.calls == 0


class Parametrized(nn.Linear):
    """A layer of torch with a counter, which becomes another class when it is parametrized."""

    calls = 0

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        self.calls += 1
        return super().forward(input)


def test_classes_that_torch_derives_from_those_of_the_user_are_restored() -> None:
    net = nn.Sequential(parametrizations.weight_norm(Parametrized(4, 4)))
    assert type(net[0]).__module__.startswith("torch.")
    transaction = Transaction.of([ModuleAttributeSnapshot(net)])
    transaction.run(lambda: fail(lambda: net(torch.ones(1, 4))))
    assert isinstance(net[0], Parametrized)
    assert net[0].calls == 0


def test_a_loss_module_that_the_model_contains_is_restored_once() -> None:
    net = Counter()
    transaction = Transaction.of([ModuleAttributeSnapshot(net, net)])
    transaction.run(lambda: fail(lambda: net(torch.ones(1, 4))))
    assert net.calls == 0


@pytest.mark.medium
def test_capturing_a_large_model_takes_a_fraction_of_a_millisecond() -> None:
    """It happens in every guarded step; about 50 µs on one core of a laptop."""
    net = nn.Sequential(*(nn.Sequential(Counter(), nn.BatchNorm1d(4)) for _ in range(100)))
    for module in net.modules():
        vars(module).pop("metric", None)
    snapshot = ModuleAttributeSnapshot(net)
    for _ in range(3):
        snapshot.capture()
    assert min(timeit.repeat(snapshot.capture, number=20, repeat=20)) / 20 < 5e-4


def test_what_a_large_object_counts_and_collects_is_restored() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model, self.count, self.name, self.best = nn.Linear(2, 2), 0, "a", (1, 2)
            self.metrics: Any = {"train": collections.defaultdict(list), "eval": {}}
            self.sums = {"loss": torch.zeros(2)}
            self.kept = [1]
            self.metrics["self"] = self.metrics  # a cycle

        def change(self) -> None:
            self.model = nn.Linear(2, 2)
            self.count, self.name, self.best, self.late = 1, "b", (3, 4), 5
            self.metrics["train"]["loss"].append(1.0)
            self.metrics["eval"] = {"loss": []}
            self.sums["loss"] += 1
            self.kept.append(2)

    trainer = Trainer()
    metrics, train = trainer.metrics, trainer.metrics["train"]
    transaction = Transaction.of([PlainAttributeSnapshot(trainer, exclude=["name"])])
    assert transaction.run(lambda: fail(trainer.change)) is not None
    assert (trainer.count, trainer.name, trainer.best, trainer.kept) == (0, "b", (1, 2), [1])
    assert not hasattr(trainer, "late")
    assert trainer.metrics is metrics
    assert trainer.metrics["train"] is train == {}
    assert trainer.metrics["eval"] == {}
    assert trainer.sums["loss"].tolist() == [0, 0]
    large = torch.zeros(1 << 19)
    trainer.sums["loss"] = large
    assert transaction.run(lambda: fail(lambda: large.add_(1))) is not None
    assert large[0] == 1  # copying it in every step would cost too much
