from __future__ import annotations

import copy
import io
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.patches import BlockCheckpointing, blocks, checkpoint


def net() -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inner(x)

    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(Residual(), Residual()), nn.Flatten(), nn.Dropout(0.5))


def step(model: nn.Module) -> tuple[Tensor, dict[str, Tensor]]:
    torch.manual_seed(1)
    loss = model(torch.randn(2, 3, 6, 6)).square().mean()
    loss.backward()
    return loss, {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def test_blocks_are_repeated_parts_not_single_layers() -> None:
    assert blocks(net()) == ("1.0", "1.1")


def test_checkpointing_keeps_gradients_and_batchnorm_statistics() -> None:
    plain, checkpointed = net(), net()
    checkpoint(checkpointed, blocks(checkpointed))
    (loss, grads), (checkpointed_loss, checkpointed_grads) = step(plain), step(checkpointed)
    assert torch.equal(loss, checkpointed_loss)
    assert all(torch.equal(grads[name], checkpointed_grads[name]) for name in grads)
    for (name, buffer), (_, other) in zip(plain.named_buffers(), checkpointed.named_buffers(), strict=True):
        assert torch.equal(buffer, other), name  # torch's own checkpoint counts the batch twice


def test_checkpointed_block_runs_twice_until_undone() -> None:
    model = net()
    runs = []
    model.get_submodule("1.0.inner.0").register_forward_hook(lambda *_: runs.append(1))
    patch = checkpoint(model, ["1.0"])
    step(model)
    assert len(runs) == 2
    patch.undo()
    step(model)
    assert len(runs) == 3
    patch.undo()  # does nothing


def test_block_runs_once_without_a_backward_pass() -> None:
    model = net().eval()
    runs = []
    model.get_submodule("1.0").register_forward_hook(lambda *_: runs.append(1))
    checkpoint(model, blocks(model))
    with torch.no_grad():
        model(torch.randn(1, 3, 6, 6))
    assert len(runs) == 1


def test_undo_leaves_no_trace_in_the_model() -> None:
    model = net()
    checkpoint(model, blocks(model)).undo()
    assert all("forward" not in module.__dict__ for module in copy.deepcopy(model).modules())


@pytest.mark.parametrize("name", ["nowhere", "1.7"])
def test_unknown_block_is_rejected_by_name(name: str) -> None:
    with pytest.raises(oomph.UsageError, match=name):
        checkpoint(net(), [name])


def test_block_is_not_checkpointed_twice() -> None:
    model = net()
    checkpoint(model, ["1.0"])
    with pytest.raises(oomph.UsageError, match="already"):
        checkpoint(model, ["1.0"])


class Noisy(nn.Module):
    """A block with random numbers of Python and NumPy and statistics of instances."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(3, 3, 1), nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x * random.random() + self.inner(x) * np.random.rand()  # noqa: S311
        return result


def noisy_net() -> nn.Module:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    return nn.Sequential(Noisy(), Noisy())


def test_recomputation_draws_the_same_random_numbers() -> None:
    plain = noisy_net()
    loss, grads = step(plain)
    next_numbers = random.random(), np.random.rand()  # noqa: S311
    model = noisy_net()
    checkpoint(model, blocks(model))
    checkpointed_loss, checkpointed_grads = step(model)
    assert (random.random(), np.random.rand()) == next_numbers  # noqa: S311
    assert torch.equal(loss, checkpointed_loss)
    assert all(torch.equal(grads[name], checkpointed_grads[name]) for name in grads)
    assert all(map(torch.equal, plain.buffers(), model.buffers()))


def test_a_copy_of_a_checkpointed_model_runs_its_own_blocks() -> None:
    model = noisy_net()
    checkpoint(model, blocks(model))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    for duplicate in (copy.deepcopy(model), loaded):
        for param in duplicate.parameters():
            param.data.zero_()
        random.seed(1)
        zeroed = duplicate(torch.ones(1, 3, 2, 2))
        random.seed(1)
        assert not torch.equal(zeroed, model(torch.ones(1, 3, 2, 2)))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 8, 12])
def test_all_blocks_are_checkpointed_in_the_end(count: int) -> None:
    model = nn.Sequential(*(Noisy() for _ in range(count)))
    checkpointing = BlockCheckpointing(model)
    assert [checkpointing.extend() for _ in range(checkpointing.steps)] == [True] * checkpointing.steps
    assert all("forward" in vars(block) for block in model)
    assert not checkpointing.extend()
