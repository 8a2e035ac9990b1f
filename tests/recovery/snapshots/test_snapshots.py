"""Snapshots of tensors, random states, gradients and optimizers: restored exactly, as often as needed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW

from oomph.recovery.snapshots._snapshots import (
    GradSnapshot,
    GradStash,
    OptimizerSnapshot,
    ParamGroupSnapshot,
    RngSnapshot,
    TensorCopies,
    may_write_grads,
    rng_states,
)

from ..faults import FaultIn, InterruptAt
from ..nets import cloned, differences, plain_batch, plain_net

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def tensor_of(layout: int, dtype: torch.dtype) -> Tensor:
    """Return a tensor that is plain, a scalar, channels_last, empty, non-contiguous or sparse."""
    tensors: list[Tensor] = [
        torch.randint(0, 2, (2, 3, 4, 5)).to(dtype),
        torch.tensor(1).to(dtype),
        torch.randint(0, 2, (2, 3, 4, 5)).to(dtype).contiguous(memory_format=torch.channels_last),
        torch.zeros(0, 3, dtype=dtype),
        torch.randint(0, 2, (4, 6)).to(dtype)[:, ::2],
        torch.eye(3).to(dtype).to_sparse(),
    ]
    return tensors[layout]


def change(tensor: Tensor) -> None:
    """Change every value in place."""
    if tensor.is_sparse:
        tensor.mul_(2)
    else:
        tensor.copy_(tensor + 1)


def dense(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.to_dense() if tensor.is_sparse else tensor for tensor in tensors]


@pytest.mark.medium
@pytest.mark.parametrize("on_host", [False, True])
def test_copies_restore_tensors_of_any_layout_repeatedly(*, on_host: bool) -> None:
    @given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(DTYPES)), min_size=1, max_size=8))
    def run(kinds: list[tuple[int, torch.dtype]]) -> None:
        tensors, copies = [tensor_of(*kind) for kind in kinds], TensorCopies()
        for _ in range(3):
            restore = copies.capture(tensors, on_host=on_host)
            before = [tensor.clone() for tensor in tensors]
            for _ in range(2):
                for tensor in tensors:
                    change(tensor)
                restore()
                assert all(map(torch.equal, dense(tensors), dense(before)))
            for tensor in tensors:  # the next capture has other values
                change(tensor)

    run()


def test_copies_reuse_their_memory_while_the_tensors_stay_the_same() -> None:
    tensors, copies = [torch.arange(5.0), torch.ones(2, 2), torch.ones(3, dtype=torch.float64)], TensorCopies()
    copies.capture(tensors)
    addresses = [duplicate.data_ptr() for duplicate in copies._copies]
    assert copies.nbytes == 5 * 4 + 4 * 4 + 3 * 8
    for _ in range(3):
        copies.capture(list(tensors))
        assert [duplicate.data_ptr() for duplicate in copies._copies] == addresses


def test_copies_are_made_on_the_host_if_the_device_has_no_memory() -> None:
    tensors, copies = [torch.arange(5.0), torch.ones(2, 2)], TensorCopies()
    with FaultIn("empty_like", times=1) as mode:
        restore = copies.capture(tensors)
    assert mode.raised == 1
    tensors[0].zero_()
    restore()
    assert tensors[0].tolist() == [0, 1, 2, 3, 4]


def test_copies_are_complete_after_an_interrupted_capture() -> None:
    for line in itertools.count(1):
        tensors, copies = [torch.ones(3)], TensorCopies()
        interrupt = InterruptAt(line)
        interrupt.run(lambda tensors=tensors, copies=copies: copies.capture(tensors))  # type: ignore[misc]
        restore = copies.capture(tensors)
        tensors[0].zero_()
        restore()
        assert tensors[0].tolist() == [1, 1, 1], f"interrupted at line {line}"
        if not interrupt.raised:
            break
    assert line > 10


@pytest.mark.parametrize("data", [torch.full((4,), 5.0), torch.full((4,), 1 / 3, dtype=torch.float64), torch.ones(3)])
def test_copies_follow_a_tensor_whose_memory_was_replaced(data: Tensor) -> None:
    param, copies = nn.Parameter(torch.ones(4)), TensorCopies()
    copies.capture([param])
    param.data = data.clone()
    restore = copies.capture([param])
    param.data.zero_()
    restore()
    assert torch.equal(param, data)


class ShardedTensor(Tensor):
    """Like a DTensor: has a local part, and doesn't support multi-tensor functions."""

    local: Tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not func.__name__.startswith("_foreach")
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    def to_local(self) -> Tensor:
        return self.local


class OtherTensor(ShardedTensor):
    """A subclass without a local part."""

    to_local = property()  # so that hasattr() is False


def test_copies_restore_tensor_subclasses() -> None:
    sharded = [torch.ones(4).as_subclass(ShardedTensor) for _ in range(2)]
    for shard in sharded:
        shard.local = torch.ones(2)
    others = [torch.ones(3).as_subclass(OtherTensor) for _ in range(2)]
    assert not hasattr(others[0], "to_local")
    restore = TensorCopies().capture([*sharded, *others])
    for tensor in (*(shard.local for shard in sharded), *others):
        tensor.zero_()
    restore()
    assert [shard.local.tolist() for shard in sharded] == [[1, 1]] * 2
    assert [tensor.tolist() for tensor in others] == [[1, 1, 1]] * 2


@needs_cuda
def test_copies_on_a_gpu_restore_small_and_large_tensors() -> None:
    small, large, copies = torch.ones(1000, device="cuda"), torch.ones(2 << 20, device="cuda"), TensorCopies()
    for value, on_host in itertools.product((1.0, 2.0), (False, True)):
        small.fill_(value)
        restore = copies.capture([small, large], on_host=on_host)
        small.zero_()
        large.zero_()
        restore()
        assert small.unique().tolist() == [value]
        assert large.unique().tolist() == [1.0]


DRAWS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "random": random.random,
    "gauss": lambda: random.gauss(0, 1),
    "seed": lambda: random.seed(3),
    "many": lambda: [random.getrandbits(32) for _ in range(624)],
    "numpy": np.random.rand,
    "numpy normal": np.random.randn,  # the second of each pair is cached
    "numpy seed": lambda: np.random.seed(3),
    "numpy many": lambda: np.random.bytes(4 * 624),
    "torch": lambda: torch.rand(1),
    "torch normal": lambda: torch.randn(1),
    "torch double": lambda: torch.randn(1, dtype=torch.float64),
    "torch seed": lambda: torch.manual_seed(3),
    "torch many": lambda: torch.rand(624),
    "torch state": lambda: torch.set_rng_state(torch.Generator().get_state()),
}


def draw() -> list[float]:
    python = [random.random(), random.gauss(0, 1)]  # noqa: S311  no secrets
    normal = [float(torch.randn(1, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    return [*python, np.random.rand(), *np.random.randn(3), float(torch.rand(1)), *normal]


@pytest.mark.parametrize("name", DRAWS)
def test_random_states_are_restored(name: str) -> None:
    snapshot = RngSnapshot(torch.device("cpu"))
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    for _ in range(3):
        DRAWS[name]()
        restore, before = snapshot.capture(), rng_states(None)
        expected = draw()
        restore()
        assert draw() == expected
        restore()
        state = rng_states(None)
        assert torch.equal(before["torch"], state["torch"])
        assert before["python"] == state["python"]
        assert before["numpy"]["has_gauss"] == state["numpy"]["has_gauss"]
        assert np.array_equal(before["numpy"]["state"]["key"], state["numpy"]["state"]["key"])


@needs_cuda
@pytest.mark.parametrize("seed", [0, 2**63 + 5])
def test_random_state_of_a_gpu_is_restored(seed: int) -> None:
    torch.cuda.manual_seed(seed)
    torch.rand(5, device="cuda")
    restore, masks = RngSnapshot(torch.device("cuda")).capture(), []
    for disturb in (lambda: None, lambda: torch.cuda.manual_seed(1), lambda: torch.randn(1000, device="cuda")):
        masks.append(nn.functional.dropout(torch.ones(1000, device="cuda")))
        disturb()
        restore()
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])


def test_gradient_snapshot_restores_dense_sparse_and_missing_gradients() -> None:
    table, layer, unused = nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1), nn.Parameter(torch.ones(1))
    parameters = [*table.parameters(), *layer.parameters(), unused]
    layer(table(torch.tensor([1, 3]))).sum().backward()
    before = [None if param.grad is None else param.grad.clone() for param in parameters]
    restore = GradSnapshot(parameters).capture()
    (layer(table(torch.tensor([2]))).sum() * unused).backward()
    for _ in range(2):
        restore()
        for param, grad in zip(parameters, before, strict=True):
            assert (param.grad is None) == (grad is None)
            if grad is not None and param.grad is not None:
                assert torch.equal(*dense([param.grad, grad]))


def test_stashed_gradients_cover_parameters_that_only_the_optimizer_holds() -> None:
    net, scale = plain_net(), nn.Parameter(torch.ones(()))
    optimizer = SGD([{"params": list(net.parameters())}], lr=0.1)
    stash = GradStash(net, [optimizer])
    stash.capture()
    assert len(stash.parameters) == 4
    optimizer.add_param_group({"params": [scale]})
    scale.grad = torch.ones(())
    restore = stash.capture()
    assert stash.parameters[4] is scale
    stash.clear()
    assert [param for param in stash.parameters if param.grad is not None] == []
    restore()
    assert stash.stashed[4] is scale.grad


def stepped_adamw() -> tuple[nn.Module, AdamW]:
    net = plain_net()
    optimizer = AdamW(net.parameters(), lr=0.1)
    train(net, optimizer)
    return net, optimizer


def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    inputs, targets = plain_batch()
    nn.functional.mse_loss(net(inputs), targets).backward()
    optimizer.step()


def everything(net: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    grads = {name: param.grad for name, param in net.named_parameters() if param.grad is not None}
    return cloned({"net": dict(net.state_dict()), "optimizer": optimizer.state_dict(), "grads": grads})


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("with_grads", [False, True])
def test_optimizer_snapshot_restores_weights_state_options_and_gradients(*, on_host: bool, with_grads: bool) -> None:
    net, optimizer = stepped_adamw()
    before = everything(net, optimizer)
    restore = OptimizerSnapshot(optimizer, before_update=True, with_grads=with_grads, on_host=on_host).capture()
    for _ in range(2):
        optimizer.param_groups[0]["lr"] = 7.0
        train(net, optimizer)
        restore()
        after = everything(net, optimizer)
        assert differences(after["net"], before["net"]) == []
        assert differences(after["optimizer"], before["optimizer"]) == []
        assert (differences(after["grads"], before["grads"]) == []) is with_grads


def test_optimizer_snapshot_makes_the_first_update_the_first_again() -> None:
    net = plain_net()
    optimizer = AdamW(net.parameters(), lr=0.1)
    restore = OptimizerSnapshot(optimizer).capture()
    train(net, optimizer)
    restore()
    assert not optimizer.state


def test_optimizer_snapshot_restores_state_that_was_moved_to_other_parameters() -> None:
    _, optimizer = stepped_adamw()
    group = optimizer.param_groups[0]
    replaced = [nn.Parameter(param.detach().clone()) for param in group["params"]]
    for old, new in zip(group["params"], replaced, strict=True):
        optimizer.state[new] = optimizer.state.pop(old)
    group["params"] = replaced
    OptimizerSnapshot(optimizer).capture()()
    assert set(map(id, optimizer.state)) == set(map(id, replaced))


def test_param_group_snapshot_restores_numbers_and_tensors() -> None:
    net = plain_net()
    weights, lr = list(net.parameters()), torch.tensor(0.5)
    groups: list[dict[str, Any]] = [{"params": weights[:2]}, {"params": weights[2:], "lr": lr}]
    optimizer = SGD(groups, lr=0.25)
    restore = ParamGroupSnapshot(optimizer).capture()
    for _ in range(2):
        for group in optimizer.param_groups:
            group["lr"] /= 2
        restore()
        assert [float(group["lr"]) for group in optimizer.param_groups] == [0.25, 0.5]


class CustomSGD(SGD):
    """A subclass may do anything in its step."""


def test_only_known_optimizers_leave_gradients_unchanged() -> None:
    parameters = list(plain_net().parameters())
    assert not may_write_grads(Adam(parameters))
    assert not may_write_grads(AdamW(parameters))
    assert not may_write_grads(SGD(parameters, lr=0.1, momentum=0.9))
    assert not may_write_grads(SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, fused=True))
    assert may_write_grads(SGD(parameters, lr=0.1, momentum=0.9, nesterov=True))
    assert may_write_grads(Adagrad(parameters))
    assert may_write_grads(CustomSGD(parameters, lr=0.1))
    hooked = SGD(parameters, lr=0.1)
    hooked.register_step_pre_hook(lambda *_: None)
    assert may_write_grads(hooked)


@pytest.mark.parametrize(
    "build",
    [
        lambda parameters: Adam(parameters, lr=0.1, weight_decay=0.1, amsgrad=True, foreach=True),
        lambda parameters: AdamW(parameters, lr=0.1, maximize=True, foreach=True),
        lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1, maximize=True, foreach=True),
        lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, fused=True),
        lambda parameters: AdamW(parameters, lr=0.1, fused=True),
    ],
)
def test_known_optimizers_leave_gradients_unchanged(build: Callable[[Any], torch.optim.Optimizer]) -> None:
    """The guard doesn't copy gradients for these, so torch must not write to them."""
    net = plain_net()
    optimizer = build(net.parameters())
    assert not may_write_grads(optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        inputs, targets = plain_batch()
        nn.functional.mse_loss(net(inputs), targets).backward()
        before = [param.grad.clone() for param in net.parameters() if param.grad is not None]
        optimizer.step()
        assert all(torch.equal(param.grad, grad) for param, grad in zip(net.parameters(), before, strict=True))  # type: ignore[arg-type]
