"""Whether an update allocates after it has begun to write, watched operation by operation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from oomph.runner._wholeness import How, Wholeness, _adam_takes_roots, how_over_all


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
    assert how_over_all(optimizer) is How.WHOLE
    assert late_allocations(optimizer) == 0


def test_others_need_a_copy() -> None:
    decayed_last: list[dict[str, Any]] = [{"params": parameters()}, {"params": parameters(), "weight_decay": 0.1}]
    for optimizer in (
        torch.optim.AdamW(parameters(), foreach=True, amsgrad=True),
        torch.optim.AdamW(parameters(), foreach=True, maximize=True),
        torch.optim.AdamW(parameters(), foreach=False),
        torch.optim.Adam(parameters(), foreach=True, weight_decay=0.1),
        torch.optim.RAdam(parameters(), foreach=True),
        torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, foreach=False),
        torch.optim.SGD(decayed_last, lr=0.1, momentum=0.9, foreach=True),
    ):
        assert late_allocations(optimizer) > 0
        assert how_over_all(optimizer) is How.COPIED


def test_on_the_cpu_nothing_is_whole() -> None:
    assert Wholeness(torch.optim.SGD(parameters(), lr=0.1, foreach=True)).how() is How.COPIED


ADAMS: list[Any] = [torch.optim.Adam, torch.optim.AdamW]


@pytest.mark.parametrize("kind", ADAMS)
def test_adam_takes_what_it_is_asked_for_and_nothing_else(kind: Any) -> None:
    assert _adam_takes_roots()
    groups: list[dict[str, Any]] = [{"params": parameters()}, {"params": parameters(), "lr": 0.5}]
    optimizer = kind(groups, foreach=True)
    assert how_over_all(optimizer) is How.ASKED
    assert late_allocations(optimizer) == 2  # once for each group
    asked = Wholeness(optimizer).ask()
    squares = [optimizer.state[one]["exp_avg_sq"] for group in groups for one in group["params"]]
    assert [one.shape for one in asked] == [one.shape for one in squares]


def test_parameters_that_never_had_a_gradient_are_not_asked_for() -> None:
    first, second = parameters()
    optimizer = torch.optim.AdamW([first, second], foreach=True)
    first.grad = torch.ones_like(first)
    optimizer.step()
    optimizer.state[second] = {}
    assert [one.shape for one in Wholeness(optimizer).ask()] == [first.shape]


def test_settings_that_change_are_looked_at_again() -> None:
    optimizer = torch.optim.AdamW(parameters(), foreach=True)
    wholeness = Wholeness(optimizer)
    assert wholeness._over_all(optimizer.param_groups) is How.ASKED
    optimizer.param_groups[0]["amsgrad"] = True
    assert wholeness._over_all(optimizer.param_groups) is How.COPIED
    optimizer.param_groups[0]["amsgrad"] = False
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
    assert wholeness._over_all(optimizer.param_groups) is How.COPIED
