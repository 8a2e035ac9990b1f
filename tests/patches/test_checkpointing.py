from __future__ import annotations

import copy
import io
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations

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


def test_blocks_in_eval_mode_are_not_counted() -> None:
    """Such as those of a teacher, which keep nothing for backward."""
    model = nn.ModuleDict({"student": net(), "teacher": net()}).train()
    model["teacher"].eval()
    checkpointing = BlockCheckpointing(model)
    assert [checkpointing.extend() for _ in range(3)] == [True, True, False]
    patched = [name for name in blocks(model) if "forward" in vars(model.get_submodule(name))]
    assert patched == ["student.1.0", "student.1.1"]


class Discriminator(nn.Module):
    """A block with spectral_norm, as torch has it now and as it had it before."""

    def __init__(self) -> None:
        super().__init__()
        new, old = parametrizations.spectral_norm(nn.Linear(4, 4)), nn.utils.spectral_norm(nn.Linear(4, 4))
        self.inner = nn.Sequential(new, nn.Tanh(), old)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(x))


class Codebook(nn.Module):
    """A block that quantizes to a codebook in buffers, which it moves, partly in ways that torch doesn't count."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.register_buffer("codes", torch.randn(5, 4))
        self.register_buffer("counts", torch.ones(5))
        self.codes: Tensor
        self.counts: Tensor

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.inner(x)
        nearest = torch.cdist(z, self.codes).argmin(1)
        one_hot = nn.functional.one_hot(nearest, 5).to(z.dtype)
        self.counts.data.lerp_(one_hot.sum(0), 0.5)
        self.codes = self.codes.lerp((one_hot.T @ z).detach(), 0.5)
        return z + (self.codes[nearest] - z).detach() * z


class Recurrent(nn.Module):
    """A block with a hidden state and a counter in attributes, and a statistic in a BatchNorm of the user."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), CountingNorm(4), nn.Linear(4, 4))
        self.hidden: Tensor | None = None
        self.mean = torch.zeros(4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        z: Tensor = self.inner(x if self.hidden is None else x + self.hidden * self.calls)
        self.mean += z.detach().mean(0)
        self.hidden = z.detach()
        return z * self.mean.clone()


class CountingNorm(nn.BatchNorm1d):
    calls = 0

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        self.calls += 1
        return super().forward(input)


def everything(model: nn.Module) -> dict[str, Tensor]:
    state = dict(model.state_dict())
    for path, module in model.named_modules():
        names = [name for name in ("calls", "hidden", "mean") if hasattr(module, name)]
        state |= {f"{path}.{name}": torch.as_tensor(getattr(module, name)) for name in names}
    return state


@pytest.mark.parametrize("kind", [Discriminator, Codebook, Recurrent])
def test_buffers_and_attributes_of_a_block_are_written_once(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4), kind(), kind()).double()
    model = copy.deepcopy(plain)
    checkpoint(model, blocks(model))
    assert blocks(model) == ("1", "2")
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(6, 4, dtype=torch.float64)
        for net in (plain, model):
            net.zero_grad()
            (net(x).square().mean() + net(x + 1).mean()).backward()  # each block runs twice before it is recomputed
        for (name, param), other in zip(plain.named_parameters(), model.parameters(), strict=True):
            assert param.grad is not None
            assert other.grad is not None
            assert torch.equal(param.grad, other.grad), name
        expected = everything(plain)
        assert expected
        assert [name for name, value in everything(model).items() if not torch.equal(value, expected[name])] == []


def test_a_block_has_its_own_buffers_again_after_an_error_in_backward() -> None:
    model = nn.Sequential(Recurrent(), Recurrent())
    checkpoint(model, blocks(model))
    first = model[0]
    assert isinstance(first, Recurrent)
    mean, fails = first.mean, [False]

    def fail(*_: object) -> None:
        if fails[0]:
            raise MemoryError

    model.get_submodule("0.inner.2").register_forward_pre_hook(fail)
    loss = model(torch.randn(3, 4)).sum()
    fails[0] = True
    with pytest.raises(MemoryError):
        loss.backward()
    assert first.mean is mean
    assert first.calls == 1
    assert model.get_submodule("0.inner.1").momentum == 0.1


def test_a_fake_model_with_a_real_tensor_can_be_checkpointed() -> None:
    """Predictions trace models with tensors that were created outside of the builder."""
    stray = torch.zeros(4)
    with FakeTensorMode():
        model = nn.Sequential(Codebook(), Codebook())
        vars(model[0])["stray"] = stray
        checkpoint(model, blocks(model))
        model(torch.randn(6, 4)).sum().backward()
    assert all(param.grad is not None for param in model.parameters())
