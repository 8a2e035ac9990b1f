"""What a split changes besides the gradient is named: buffers, attributes, hooks, stray gradients, random numbers."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from oomph.recovery.snapshots._side_effects import SideEffect, SideEffects, SpectralNormSnapshot, stray_gradients

from ..nets import plain_net

CPU = torch.device("cpu")


def look(model: nn.Module, x: Tensor | None = None, looks: int = 2, **options: Any) -> dict[str, SideEffect]:
    """Return what forwards and backwards of a model change, by kind, as a guard looks for it."""
    effects, findings = SideEffects(model, device=CPU, **options), {}
    for _ in range(looks):
        if effects.is_done:
            break
        effects.before()
        inputs = torch.ones(4, 4) if x is None else x
        model(inputs).square().mean().backward()
        findings = {finding.kind: finding for finding in effects.after()}
    return findings


class Quantizer(nn.Module):
    """A codebook with moving averages, written with and without torch's counting of versions."""

    def __init__(self, *, counted: bool) -> None:
        super().__init__()
        self.encoder, self.counted = nn.Linear(4, 4), counted
        self.register_buffer("codes", torch.randn(5, 4))
        self.register_buffer("counts", torch.ones(5))
        self.register_buffer("constant", torch.full((3,), torch.nan))
        self.codes: Tensor
        self.counts: Tensor

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.encoder(x)
        nearest = torch.cdist(z, self.codes).argmin(1)
        one_hot = nn.functional.one_hot(nearest, 5).to(z.dtype)
        with torch.no_grad():
            (self.codes if self.counted else self.codes.data).lerp_(one_hot.T @ z, 0.1)
            (self.counts if self.counted else self.counts.data).lerp_(one_hot.sum(0), 0.1)
        return z + (self.codes[nearest] - z).detach()


class Queue(nn.Module):
    """A queue of keys as MoCo has it: one slice of it is overwritten, or the whole of it is shifted."""

    def __init__(self, *, shifted: bool) -> None:
        super().__init__()
        self.encoder, self.shifted = nn.Linear(4, 4), shifted
        self.register_buffer("queue", torch.randn(30_000, 4))  # large enough for a checksum of several chunks
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self.queue: Tensor
        self.pointer: Tensor

    def forward(self, x: Tensor) -> Tensor:
        keys: Tensor = self.encoder(x)
        if self.shifted:
            self.queue = self.queue.roll(2**13, 0)  # by a whole chunk
        else:
            start = 25_000 + int(self.pointer)
            self.queue[start : start + 1] = keys[:1].detach()
        return keys


@pytest.mark.parametrize("counted", [False, True])
def test_a_codebook_is_named(*, counted: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Quantizer(counted=counted))
    finding = look(model)["buffer"]
    assert finding.names == ("1.codes", "1.counts")
    assert finding.message == (
        "2 buffers (the first is '1.codes') are written in the forward, once per micro-batch instead of once per step, "
        "so a split step differs from an unsplit one; put that module into eval() mode, or write to the buffer after "
        "the step."
    )


@pytest.mark.parametrize("shifted", [False, True])
def test_a_queue_is_named(*, shifted: bool) -> None:
    finding = look(Queue(shifted=shifted))["buffer"]
    assert finding.names == ("queue",)
    assert finding.message.startswith("The buffer 'queue' is written in the forward")


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(3),
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(3, dtype=torch.uint8),
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros((), dtype=torch.float64),
        torch.zeros(4, 1).expand(4, 3),
        torch.eye(3).to_sparse(),
        torch.zeros(0),
    ],
    ids=str,
)
def test_buffers_of_any_type_are_compared(value: Tensor) -> None:
    class Net(nn.Module):
        def __init__(self, *, writes: bool) -> None:
            super().__init__()
            self.linear, self.writes = nn.Linear(4, 4), writes
            self.register_buffer("value", value.clone())
            self.value: Tensor

        def forward(self, x: Tensor) -> Tensor:
            if self.writes:
                self.value = _written(self.value)
            outputs: Tensor = self.linear(x)
            return outputs

    assert look(Net(writes=True))["buffer"].names == ("value",)
    assert look(Net(writes=False)) == {}


def _written(value: Tensor) -> Tensor:
    if value.is_sparse:
        return value.mul_(0.5)
    return value.add_(torch.ones_like(value)) if value.numel() else value.new_ones(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("size", [64, 1 << 17])
def test_flipped_signs_swapped_values_and_sums_that_stay_are_seen(dtype: torch.dtype, size: int) -> None:
    changes: tuple[Callable[[Tensor], Tensor], ...] = (
        torch.neg,
        lambda buffer: buffer.flip(0),
        lambda buffer: buffer + torch.tensor([1, -2, 1] + [0] * (size - 3), dtype=dtype),
        lambda buffer: buffer * 2,
    )
    for change in changes:

        class Net(nn.Linear):
            def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
                self.buffer = change(self.get_buffer("buffer"))  # noqa: B023  used within the loop
                return super().forward(input)

        net = Net(4, 4)
        net.register_buffer("buffer", (torch.arange(size) % 1000).to(dtype))
        assert look(net)["buffer"].names == ("buffer",)


def test_running_statistics_are_not_named_but_a_subclass_with_another_buffer_is() -> None:
    class Norm(nn.BatchNorm1d):
        def __init__(self) -> None:
            super().__init__(4)
            self.register_buffer("batches", torch.zeros(()))

        def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
            self.get_buffer("batches").add_(1)
            return super().forward(input)

    norms = nn.Sequential(nn.BatchNorm1d(4), nn.LayerNorm(4))
    assert look(nn.Sequential(nn.Linear(4, 4), norms)) == {}
    assert look(nn.Sequential(nn.Linear(4, 4), Norm()))["buffer"].names == ("1.batches",)


class Stateful(nn.Module):
    """Has a hidden state, a counter, a list, a cache and an output with its graph in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.scale, self.ratio = nn.Linear(4, 4), 2.0, float("nan")
        self.calls, self.h, self.log = 0, torch.zeros(4, 4), [0]
        self.cache: Tensor | None = None
        self.shared = {"constant": torch.ones(2)}

    def forward(self, x: Tensor) -> Tensor:
        self.cache = self.cache if self.cache is not None else torch.ones(3)
        self.calls += 1
        self.log.append(self.calls)
        self.outputs: Tensor = self.cell(x + self.h)
        self.h = self.outputs.detach()
        return self.outputs


def test_attributes_are_named_but_caches_and_graphs_are_not() -> None:
    finding = look(nn.Sequential(Stateful()))["attribute"]
    assert finding.names == ("0.calls", "0.h", "0.log")
    assert finding.message.startswith("3 module attributes (the first is '0.calls') change in the forward, once per")


class Late(nn.Module):
    """Gets its hidden state in the first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)
        self.h: Tensor | None = None
        self.register_buffer("late", None)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.cell(x if self.h is None else x + self.h)
        self.h = outputs.detach()
        self.late = torch.ones(2)
        return outputs


def test_a_state_that_begins_as_none_is_named_by_the_second_look() -> None:
    assert look(Late(), looks=1) == {}
    assert look(Late())["attribute"].names == ("h",)


def test_state_of_the_loss_is_named() -> None:
    loss = Stateful()
    effects = SideEffects(plain_net(), [loss])
    effects.before()
    loss.calls += 1
    assert [finding.names for finding in effects.after()] == [("loss.calls",)]
    assert effects.is_done


def clamp(grad: Tensor) -> Tensor:
    return grad.clamp(-0.01, 0.01)


HOOKS: dict[str, tuple[Callable[[nn.Module], object], str]] = {
    "parameter": (lambda net: net.get_parameter("0.weight").register_hook(clamp), "0.weight"),
    "accumulated": (
        lambda net: net.get_parameter("2.bias").register_post_accumulate_grad_hook(lambda param: None),
        "2.bias",
    ),
    "partial": (lambda net: net.get_parameter("0.weight").register_hook(functools.partial(clamp)), "0.weight"),
    "built-in": (lambda net: net.get_parameter("0.weight").register_hook(torch.nan_to_num), "0.weight"),
    "module": (lambda net: net.get_submodule("2").register_full_backward_hook(lambda *_: None), "2"),
    "before a module": (lambda net: net.get_submodule("2").register_full_backward_pre_hook(lambda *_: None), "2"),
    "model": (lambda net: net.register_full_backward_hook(lambda *_: None), "Sequential"),
}


@pytest.mark.parametrize("name", HOOKS)
def test_gradient_hooks_are_named(name: str) -> None:
    net, (register, expected) = plain_net(), HOOKS[name]
    register(net)
    findings = look(net, torch.ones(4, 4, requires_grad=True))
    assert findings["gradient hook"].names == (expected,)
    assert findings.keys() == {"gradient hook"}
    assert findings["gradient hook"].message.startswith(f"A hook on the gradient of {expected!r} sees one micro-batch")


def test_hooks_of_torch_distributed_and_of_oomph_are_not_named() -> None:
    net = plain_net()
    for origin in ("torch.distributed.fsdp._hooks", "torch.nn.parallel.distributed", "oomph.recovery._memory"):

        def hook(grad: Tensor) -> Tensor:
            return grad

        hook.__module__ = origin
        net.get_parameter("0.weight").register_hook(hook)
    assert look(net) == {}


DRAWS: dict[str, Callable[[], object]] = {
    "torch": lambda: torch.rand(1),
    "Python": random.random,
    "NumPy": np.random.rand,
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_draws_are_named(name: str) -> None:
    class Noise(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
            DRAWS[name]()
            return super().forward(input)

    finding = look(Noise(4, 4))["random"]
    assert finding.names == (name,)
    assert finding.message.startswith(f"The forward draws random numbers of {name} (dropout, noise, augmentation)")


def test_dropout_is_named_in_training_mode_only() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    assert look(net)["random"].names == ("torch",)
    assert look(net.eval()) == {}


def test_looking_changes_nothing() -> None:
    net = nn.Sequential(nn.Linear(4, 4), Quantizer(counted=True), Stateful(), nn.Dropout())
    other = copy.deepcopy(net)
    state = torch.get_rng_state()
    look(net, looks=1)
    torch.set_rng_state(state)
    other(torch.ones(4, 4)).square().mean().backward()
    for (name, value), expected in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value.nan_to_num(), expected.nan_to_num()), name
    assert torch.equal(net.get_submodule("2").h, other.get_submodule("2").h)  # type: ignore[arg-type]


def test_a_model_without_side_effects_has_no_findings() -> None:
    assert look(plain_net()) == {}


def test_gradients_of_another_backward_are_named() -> None:
    net = plain_net()
    assert stray_gradients(net.named_parameters()) is None
    net[0](torch.ones(1, 4)).sum().backward()
    finding = stray_gradients(net.named_parameters())
    assert finding is not None
    assert finding.kind == "stray gradient"
    assert finding.names == ("0.weight", "0.bias")
    assert finding.message.startswith("2 parameters (the first is '0.weight') have gradients at the start of the step")
    weight, bias = net.get_parameter("0.weight").grad, net.get_parameter("0.bias").grad
    assert weight is not None
    assert bias is not None
    assert stray_gradients(net.named_parameters(), [weight, bias]) is None
    finding = stray_gradients(net.named_parameters(), [weight])
    assert finding is not None
    assert finding.message.startswith("The parameter '0.bias' has a gradient")


def discriminator(normalize: Callable[..., nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    layers = [normalize(nn.Conv2d(1, 4, 3)), nn.LeakyReLU(), nn.Flatten(), normalize(nn.Linear(16, 3))]
    return nn.Sequential(*layers).double()


def train_discriminator(net: nn.Module, micro_batches: int, *, rewinds: bool = True) -> None:
    """Train with hand-written accumulation on real and generated images, two forwards per micro-batch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    snapshot = SpectralNormSnapshot(net)
    for _ in range(5):
        real, fake = torch.randn(2, 8, 1, 4, 4, generator=generator, dtype=torch.float64)
        rewind = snapshot.capture()
        for index, (x, y) in enumerate(zip(real.chunk(micro_batches), fake.chunk(micro_batches), strict=True)):
            if index and rewinds:
                rewind()
            loss = nn.functional.relu(1 - net(x)).mean() + nn.functional.relu(1 + net(y)).mean()
            (loss / micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("normalize", [parametrizations.spectral_norm, nn.utils.spectral_norm], ids=["new", "old"])
def test_a_split_step_is_exact_with_spectral_norm(normalize: Callable[..., nn.Module]) -> None:
    whole, split, wrong = (discriminator(normalize) for _ in range(3))
    train_discriminator(whole, 1)
    train_discriminator(split, 4)
    train_discriminator(wrong, 4, rewinds=False)
    expected = whole.state_dict()
    assert all(torch.allclose(value, expected[name], rtol=0, atol=1e-12) for name, value in split.state_dict().items())
    assert not all(torch.allclose(value, expected[name], atol=1e-6) for name, value in wrong.state_dict().items())


@pytest.mark.parametrize("normalize", [parametrizations.spectral_norm, nn.utils.spectral_norm], ids=["new", "old"])
def test_vectors_of_spectral_norm_are_named_unless_they_are_rewound(normalize: Callable[..., nn.Module]) -> None:
    net = discriminator(normalize)
    x = torch.ones(2, 1, 4, 4, dtype=torch.float64)
    assert len(look(net, x)["buffer"].names) == 4
    assert look(net, x, rewound=SpectralNormSnapshot(net).vectors) == {}


def test_a_model_without_spectral_norm_has_no_vectors() -> None:
    snapshot = SpectralNormSnapshot(plain_net(), nn.BatchNorm1d(2))
    assert snapshot.vectors == []
    snapshot.capture()()


class OwnNorm(nn.Module):
    """A normalization of the user; CUDA's kernel writes to the statistics without counting a version."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))
        self.average: Tensor
        self.variance: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(self.linear(x), self.average, self.variance, training=True)


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))],
)
def test_statistics_of_another_normalization_and_the_device_generator_are_named(device: str) -> None:
    net, x = nn.Sequential(OwnNorm(), nn.Dropout()).to(device), torch.randn(4, 4, device=device)
    effects = SideEffects(net, device=torch.device(device))
    effects.before()
    net(x).sum().backward()
    findings = {finding.kind: finding.names for finding in effects.after()}
    assert findings == {
        "buffer": ("0.average", "0.variance"),
        "random": ("CUDA" if device == "cuda" else "torch",),
    }
