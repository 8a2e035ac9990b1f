"""Whether an update allocates after it has begun to write, watched operation by operation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from oomph.runner import _wholeness
from oomph.runner._wholeness import Wholeness, asks_first


class Watch(TorchDispatchMode):
    """Counts operations that allocate after one that wrote to a parameter or to optimizer state."""

    def __init__(self, kept: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept = {tensor.data_ptr() for tensor in kept}
        self.written, self.late = False, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {leaf.data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        out = func(*args, **(kwargs or {}))
        made = {leaf.data_ptr() for leaf in tree_leaves(out) if isinstance(leaf, Tensor)} - given
        self.late += bool(made) and self.written
        self.written = self.written or (func._schema.is_mutable and bool(given & self._kept))
        return out


def late_allocations(optimizer: torch.optim.Optimizer) -> int:
    for _ in range(2):  # the first one makes the state
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.randn_like(parameter)
        state = [leaf for leaf in tree_leaves(dict(optimizer.state)) if isinstance(leaf, Tensor) and leaf.dim()]
        kept = [*state, *(one for group in optimizer.param_groups for one in group["params"])]
        with Watch(kept) as watch:
            optimizer.step()
    assert watch.written
    return watch.late


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(7))]


@pytest.mark.parametrize("form", [{}, {"nesterov": True}], ids=["plain", "nesterov"])
@pytest.mark.parametrize(
    "first", [{}, {"maximize": True}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "maximize": True}]
)
def test_sgd_over_all_tensors_takes_its_memory_first(form: dict[str, Any], first: dict[str, Any]) -> None:
    groups: list[dict[str, Any]] = [{"params": parameters(), **first}, {"params": parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, foreach=True, **form)
    assert asks_first(optimizer)
    assert late_allocations(optimizer) == 0


def test_others_need_a_copy() -> None:
    decayed_last: list[dict[str, Any]] = [{"params": parameters()}, {"params": parameters(), "weight_decay": 0.1}]
    for optimizer in (
        torch.optim.AdamW(parameters(), foreach=True),
        torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, fused=False),  # one by one, too
        torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, foreach=False),
        torch.optim.SGD(decayed_last, lr=0.1, momentum=0.9, foreach=True),
    ):
        assert late_allocations(optimizer) > 0
        assert not asks_first(optimizer)


def test_on_the_cpu_nothing_is_whole() -> None:
    assert not Wholeness(with_state(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, foreach=True))).holds()
    assert not Wholeness(torch.optim.SGD([{"params": []}], lr=0.1, foreach=True)).holds()


def with_state(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    late_allocations(optimizer)
    return optimizer


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are taken for those of a GPU."""
    monkeypatch.setattr(_wholeness, "_PLACE", lambda one: (True, one.dtype))


@pytest.mark.usefixtures("_gpu")
def test_what_is_whole_on_a_gpu() -> None:
    optimizer = with_state(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, foreach=True))
    wholeness = Wholeness(optimizer)
    assert wholeness.holds()
    assert not wholeness.holds(sparing=True)  # then it may go parameter by parameter
    for setting, value in (("foreach", False), ("lr", torch.tensor(0.1))):
        before = optimizer.param_groups[0][setting]
        optimizer.param_groups[0][setting] = value
        assert not wholeness.holds()
        optimizer.param_groups[0][setting] = before
        assert wholeness.holds()
    optimizer.param_groups[0]["params"][0].data = optimizer.param_groups[0]["params"][0].data.double()
    assert not wholeness.holds()  # two types: the second is allocated when the first is written


@pytest.mark.usefixtures("_gpu")
def test_somebodys_hooks_make_it_uncertain() -> None:
    optimizer = with_state(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, foreach=True))
    for register in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook):
        handle = register(lambda *_: None)
        assert not Wholeness(optimizer).holds()
        handle.remove()
        assert Wholeness(optimizer).holds()
    handle = optimizer.register_step_post_hook(lambda *_: None)
    assert Wholeness(optimizer, hooks=1).holds()  # the guard's own
    everywhere = register_optimizer_step_post_hook(lambda *_: None)
    assert not Wholeness(optimizer, hooks=1).holds()
    everywhere.remove()


@pytest.mark.usefixtures("_gpu")
def test_state_must_be_that_of_these_parameters() -> None:
    optimizer = with_state(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, foreach=True))
    wholeness = Wholeness(optimizer)
    old = optimizer.param_groups[0]["params"]
    fresh = parameters()
    for one in fresh:
        one.grad = torch.ones_like(one)
    optimizer.param_groups[0]["params"] = fresh
    assert not wholeness.holds()
    optimizer.param_groups[0]["params"] = old
    assert wholeness.holds()
    old[0].grad = None
    del optimizer.state[old[0]]
    assert wholeness.holds()  # a frozen one needs none
    optimizer.state[old[1]] = {}
    assert not wholeness.holds()
