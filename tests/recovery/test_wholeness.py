"""Whether an update allocates after it has begun to write, watched operation by operation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from oomph.recovery import _wholeness
from oomph.recovery._rehearsal import share_made
from oomph.recovery._wholeness import Wholeness, asks_first, room_for


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


def test_others_need_room_or_a_copy() -> None:
    decayed_last: list[dict[str, Any]] = [{"params": parameters()}, {"params": parameters(), "weight_decay": 0.1}]
    one_by_one = (
        torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, fused=False),
        torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, foreach=False),
        torch.optim.AdamW(parameters(), foreach=False),
    )
    over_all = (
        torch.optim.AdamW(parameters(), foreach=True),
        torch.optim.Adam(parameters(), foreach=True, weight_decay=0.1, amsgrad=True),
        torch.optim.SGD(decayed_last, lr=0.1, momentum=0.9, foreach=True),
        torch.optim.RMSprop(parameters(), foreach=True),  # nobody has looked
    )
    for optimizer in (*one_by_one, *over_all):
        assert late_allocations(optimizer) > 0
        assert not asks_first(optimizer)
    assert [room_for(optimizer) is not None for optimizer in one_by_one] == [False, False, False]
    assert [room_for(optimizer) is not None for optimizer in over_all] == [True, True, True, False]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("on", [(), ("maximize",), ("weight_decay",), ("weight_decay", "maximize")])
def test_an_update_makes_no_more_than_its_weights(kind: Any, on: tuple[str, ...]) -> None:
    """What room is found for, of this version of torch."""
    assert share_made(kind, on) <= 1
    assert bool(share_made(kind, on)) == (bool(on) or kind is not torch.optim.SGD)


def test_a_version_that_makes_more_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share_made(torch.optim.Adagrad, ()) > 1  # so such things can be seen
    monkeypatch.setattr(_wholeness, "share_made", lambda *_: 1.5)
    assert room_for(torch.optim.AdamW(parameters(), foreach=True)) is None


def test_on_the_cpu_nothing_is_whole() -> None:
    assert not Wholeness(with_state(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, foreach=True))).holds()
    assert not Wholeness(torch.optim.SGD([{"params": []}], lr=0.1, foreach=True)).holds()


def with_state(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    late_allocations(optimizer)
    return optimizer


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_what_is_whole_on_a_gpu(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = with_state(kind(parameters(), lr=0.1, foreach=True, **own))
    wholeness = Wholeness(optimizer)
    assert wholeness.holds()
    assert not wholeness.holds(sparing=True)  # then it may go parameter by parameter
    for setting, value in [("foreach", False), ("differentiable", True), *([] if own else [("capturable", True)])]:
        before = optimizer.param_groups[0][setting]
        optimizer.param_groups[0][setting] = value
        assert not wholeness.holds()
        optimizer.param_groups[0][setting] = before
        assert wholeness.holds()
    tensors: dict[str, Any] = {"lr": torch.tensor(0.1)} if own else {"betas": (torch.tensor(0.9), 0.9)}
    for setting, tensor in tensors.items():
        before = optimizer.param_groups[0][setting]
        optimizer.param_groups[0][setting] = tensor
        assert not Wholeness(optimizer).holds()
        optimizer.param_groups[0][setting] = before
    monkeypatch.setattr(_wholeness, "is_kept", lambda: False)
    assert Wholeness(optimizer).holds() == bool(own)  # Adam's room would not stay


class Own(torch.optim.Optimizer):
    """Somebody's own optimizer, without any of torch's settings."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"strength": 0.1})

    def step(self, closure: Any = None) -> Any:
        del closure


@pytest.mark.usefixtures("gpu")
def test_of_others_optimizers_nothing_is_known() -> None:
    assert not Wholeness(Own(parameters())).holds()


@pytest.mark.usefixtures("gpu")
def test_two_types_need_room() -> None:
    """The second is allocated when the first is written."""
    optimizer = with_state(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True))
    wholeness = Wholeness(optimizer)
    assert wholeness.holds()
    assert wholeness._room is None
    optimizer.param_groups[0]["params"][0].data = optimizer.param_groups[0]["params"][0].data.double()
    wholeness = Wholeness(optimizer)
    assert wholeness.holds()
    assert wholeness._room is not None


@pytest.mark.usefixtures("gpu")
def test_a_step_of_somebodys_own_is_uncertain() -> None:
    optimizer = with_state(torch.optim.AdamW(parameters(), lr=0.1, foreach=True))
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)  # puts a counting step in its place
    assert "step" in vars(optimizer)
    assert Wholeness(optimizer).holds()
    setattr(optimizer, "step", lambda: None)  # noqa: B010  as others do
    assert not Wholeness(optimizer).holds()


@pytest.mark.usefixtures("gpu")
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


@pytest.mark.usefixtures("gpu")
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
    old[0].requires_grad_(requires_grad=False)
    del optimizer.state[old[0]]
    assert wholeness.holds()  # a frozen one needs none
    optimizer.state[old[1]] = {}
    assert not wholeness.holds()


@pytest.mark.usefixtures("gpu")
def test_gradients_that_may_become_sparse_are_waited_for() -> None:
    """torch goes one by one with them, and allocates in between."""
    given = parameters()
    optimizer = torch.optim.SGD(given, lr=0.1, momentum=0.9, foreach=True)
    given[1].grad = torch.ones_like(given[1])
    optimizer.step()  # the table has none yet
    wholeness = Wholeness(optimizer)
    assert not wholeness.holds()
    given[0].grad = torch.ones_like(given[0]).to_sparse()
    optimizer.step()
    assert not wholeness.holds()
    dense = with_state(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, foreach=True))
    assert Wholeness(dense).holds()


@pytest.mark.usefixtures("gpu")
def test_sgd_without_momentum_needs_no_state() -> None:
    optimizer = with_state(torch.optim.SGD(parameters(), lr=0.1, weight_decay=0.1, foreach=True))
    assert not optimizer.state
    assert Wholeness(optimizer).holds()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("before", [(5, 3), (), (1, 1)])
@pytest.mark.parametrize("shape", [(5, 3), (6, 3), (4,), ()])
def test_a_parameter_in_the_place_of_another_is_found(before: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """As those do who grow or prune what they train: the groups' lists stay, and as many have state."""
    given = [nn.Parameter(torch.zeros(before)), *parameters()]
    optimizer = with_state(torch.optim.AdamW(given, lr=0.0, foreach=True))
    wholeness = Wholeness(optimizer)
    assert wholeness.holds()
    held = optimizer.param_groups[0]["params"]
    other = nn.Parameter(torch.zeros(shape))
    other.grad = torch.zeros(shape)
    optimizer.state[other] = {}  # none yet
    del optimizer.state[held[0]]
    held[0] = other
    assert not wholeness.holds()
    optimizer.step()
    assert wholeness.holds()


def test_a_rehearsal_is_held_on_the_cpu_and_may_fail() -> None:
    with torch.device("meta"):
        assert share_made.__wrapped__(torch.optim.AdamW, ()) == 1

    class Failing(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            raise RuntimeError(f"tensors on two devices: {closure}")

    assert share_made.__wrapped__(Failing, ()) == math.inf


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {}, None], ids=["SGD", "SGD without momentum", "AdamW"])
def test_a_write_is_seen_by_versions(device: str, settings: dict[str, Any] | None) -> None:
    """So that an update that ends half-way is known to have."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    given = [nn.Parameter(one.detach().to(device)) for one in parameters()]
    optimizer: torch.optim.Optimizer
    if settings is None:
        optimizer = torch.optim.AdamW(given, foreach=True)
    else:
        optimizer = torch.optim.SGD(given, lr=0.1, foreach=True, **settings)
    optimizer.add_param_group({"params": [nn.Parameter(one.detach().to(device)) for one in parameters()]})
    given = [one for group in optimizer.param_groups for one in group["params"]]
    look = Wholeness(optimizer)
    # Which of them have gradients, and are updated: all of both groups in the end.
    for having in ([1], [1], [0, 1], [2], [0, 3], [0, 1, 2, 3], [1], [3], [0, 1, 2, 3]):
        for index, one in enumerate(given):
            one.grad = torch.ones_like(one) if index in having else None
        look.holds()
        before = look.versions()
        assert look.versions() == before
        optimizer.step()
        assert look.versions() != before
    look.holds()
    before = look.versions()
    with torch.no_grad():
        for one in given[2:]:  # the second group alone
            one.add_(1)
    assert look.versions() != before
