"""Any loss of a split batch: each micro-batch runs twice, and the gradient is that of the whole batch."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery import Guard

from ..faults import ByteCap, FailingCall, FaultAt, in_split_check
from ..nets import cloned, differences, guard_of, plain_batch, plain_net

F = nn.functional


def contrastive_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs @ targets.T, torch.arange(len(outputs)))


def quantile_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs().sum(1).quantile(0.7)


def top_k_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).pow(2).sum(1).topk(3).values.mean()


def double_batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    return plain_batch(8, seed, torch.float64)


def guard_with(net: nn.Module, loss: Any, **options: Any) -> Guard:
    """Return a guard with SGD at a learning rate of 1: the change of the weights is the gradient."""
    parameters = [*net.parameters(), *(loss.parameters() if isinstance(loss, nn.Module) else ())]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    return oomph.guard(**{"model": net, "optimizer": optimizer, "loss": loss, **options})


def step_gradients(guard: Guard, batch: Any, micro_batches: int) -> list[Tensor]:
    parameters = [param for group in guard.optimizers[0].param_groups for param in group["params"]]
    before = [param.detach().clone() for param in parameters]
    assert guard.step(batch).micro_batches == micro_batches
    return [old - param.detach() for old, param in zip(before, parameters, strict=True)]


def assert_gradients(grads: list[Tensor], loss: Tensor, parameters: Any) -> None:
    expected = torch.autograd.grad(loss, list(parameters))
    for grad, right in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, right, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", [contrastive_loss, quantile_loss, top_k_loss])
@pytest.mark.parametrize("micro_batch", [4, 3, 1])
def test_the_gradient_is_that_of_the_whole_batch(loss: Any, micro_batch: int) -> None:
    net, plain, batch = plain_net(torch.float64), plain_net(torch.float64), double_batch()
    guard = guard_with(net, loss, micro_batch=micro_batch)
    grads = step_gradients(guard, batch, -(-8 // micro_batch))
    assert_gradients(grads, loss(plain(batch[0]), batch[1]), plain.parameters())
    assert guard.notices == ()


def test_a_step_that_is_not_split_runs_once() -> None:
    calls: list[str] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append("check" if in_split_check() else "step")
        return contrastive_loss(outputs, targets)

    net = plain_net()
    net.register_forward_hook(lambda *_: calls.append("check" if in_split_check() else "model"))
    guard = guard_with(net, loss)
    guard.step(plain_batch())
    calls.clear()
    guard.step(plain_batch())
    assert calls == ["model", "step"]
    guard.retry_policy.micro_batch = 4
    calls.clear()
    guard.step(plain_batch())
    assert calls == ["model", "model", "step", "model", "model"]


def test_only_one_micro_batch_is_in_memory() -> None:
    peaks = []
    for micro_batch in (None, 16):
        torch.manual_seed(0)
        net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())), nn.Linear(64, 2))
        guard = guard_with(net, top_k_loss, micro_batch=micro_batch)
        batch = torch.randn(256, 64), torch.randn(256, 2)
        guard.step(batch)
        with ByteCap(1 << 40) as cap:
            guard.step(batch)
        peaks.append(cap.peak)
    assert peaks[1] < 0.6 * peaks[0]


class NoisyModel(nn.Module):
    """BatchNorm, dropout, a counter in a buffer and one in an attribute, and random numbers of three libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.4), nn.Linear(6, 2)).double()
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        noise = random.random() + np.random.rand() + float(torch.rand(()))  # noqa: S311  their states matter
        outputs: Tensor = self.layers(x) * (1 + 0.1 * noise)
        return outputs


def noisy_model() -> NoisyModel:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    return NoisyModel()


def test_both_passes_draw_the_same_numbers() -> None:
    """Compared with one graph over all micro-batches, in which each runs once."""
    plain, batch = noisy_model(), double_batch()
    loss = contrastive_loss(torch.cat([plain(part) for part in batch[0].split(2)]), batch[1])
    drawn = random.random(), np.random.rand(), float(torch.rand(()))  # noqa: S311  their states matter
    net = noisy_model()
    grads = step_gradients(guard_with(net, contrastive_loss, micro_batch=2), batch, 4)
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == drawn  # noqa: S311  their states matter
    assert_gradients(grads, loss, plain.parameters())
    assert differences(dict(net.named_buffers()), dict(plain.named_buffers())) == []
    assert net.count == plain.count == 4
    assert float(net.calls) == float(net.get_buffer("layers.1.num_batches_tracked")) == 4


def test_a_loss_that_draws_random_numbers_runs_last() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return contrastive_loss(outputs + torch.randn_like(outputs), targets)

    plain, batch = noisy_model(), double_batch()
    value = loss(torch.cat([plain(part) for part in batch[0].split(2)]), batch[1])
    drawn = float(torch.rand(()))
    grads = step_gradients(guard_with(noisy_model(), loss, micro_batch=2), batch, 4)
    assert float(torch.rand(())) == drawn
    assert_gradients(grads, value, plain.parameters())


class Failures:
    """Runs out of memory once: in a call of the model, in the loss, or in the backward of a micro-batch."""

    def __init__(self, place: str, call: int) -> None:
        self.fails = {name: FailingCall(lambda: None, call if name == place else 0) for name in PLACES}

    def attach(self, net: nn.Module) -> None:
        def hook(_: nn.Module, __: object, outputs: Tensor) -> None:
            self.fails["model"]()
            if outputs.requires_grad:
                outputs.register_hook(lambda grad: self.fails["backward"]())

        net.register_forward_hook(hook)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.fails["loss"]()
        return contrastive_loss(outputs, targets)

    @property
    def raised(self) -> int:
        return sum(fail.raised for fail in self.fails.values())


PLACES = ("model", "loss", "backward")


@pytest.mark.parametrize(
    ("place", "call"),
    [("model", 1), ("model", 2), ("loss", 1), ("model", 3), ("backward", 1), ("model", 4), ("backward", 2)],
)
def test_a_retry_is_bit_identical(place: str, call: int) -> None:
    """The model is called in the first pass (1, 2) and in the second (3, 4)."""
    states = []
    for failures, micro_batch in ((Failures("none", 0), 2), (Failures(place, call), 4)):
        net, seen = noisy_model(), [0]

        def forward(model: nn.Module, batch: Any, seen: list[int] = seen) -> Tensor:
            seen[0] += len(batch[0])
            return model(batch[0])

        failures.attach(net)
        options: dict[str, Any] = {"forward": forward, "extra_state": (seen,), "micro_batch": micro_batch}
        guard = guard_with(net, failures.loss, **options)
        report = guard.step(double_batch())
        assert (report.micro_batches, report.retries) == (4, failures.raised)
        assert seen == [8]
        assert net.count == 4
        states.append(cloned(guard.state_dict()))
    assert failures.raised == 1
    assert differences(*states) == []


@pytest.mark.medium
def test_error_at_every_operation() -> None:
    guard, batch = guard_with(noisy_model(), contrastive_loss, micro_batch=4), double_batch()
    guard.step(batch)
    start, ends = cloned(guard.state_dict()), dict[int, Any]()
    for operation in itertools.count(1):
        guard.load_state_dict(cloned(start))
        with FaultAt([operation]) as mode:
            micro_batches = guard.step(batch).micro_batches
        state = cloned(guard.state_dict())
        if micro_batches not in ends:
            guard.load_state_dict(cloned(start))
            guard.retry_policy.micro_batch = 8 // micro_batches
            assert guard.step(batch).micro_batches == micro_batches
            ends[micro_batches] = cloned(guard.state_dict())
        assert differences(state, ends[micro_batches]) == []
        if not mode.raised:
            break
    assert operation > 100
    assert set(ends) >= {2, 4}


class ProxyLoss(nn.Module):
    """A loss over pairs of samples with parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([1.5, -0.5], dtype=torch.float64))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return contrastive_loss(outputs * self.weights, targets)


def test_parameters_of_the_loss_get_their_gradient() -> None:
    net, plain, loss, plain_loss, batch = plain_net(torch.float64), plain_net(torch.float64), *two_losses()
    grads = step_gradients(guard_with(net, loss, micro_batch=2), batch, 4)
    value = plain_loss(plain(batch[0]), batch[1])
    assert_gradients(grads, value, [*plain.parameters(), *plain_loss.parameters()])


def two_losses() -> tuple[ProxyLoss, ProxyLoss, tuple[Tensor, Tensor]]:
    return ProxyLoss(), ProxyLoss(), double_batch()


def test_a_frozen_model_trains_its_loss() -> None:
    net, loss, plain_loss, batch = plain_net(torch.float64).requires_grad_(requires_grad=False), *two_losses()
    guard = guard_with(net, loss, optimizer=torch.optim.SGD(loss.parameters(), lr=1.0), micro_batch=2)
    assert_gradients(step_gradients(guard, batch, 4), plain_loss(net(batch[0]), batch[1]), plain_loss.parameters())


@dataclass
class ClipOutputs:
    image: Tensor
    text: Tensor
    scale: Tensor
    classes: Tensor
    name: str = "clip"


FORMS: dict[str, Callable[[ClipOutputs], Any]] = {
    "dataclass": lambda outputs: outputs,
    "dict": lambda outputs: dict(vars(outputs)),
    "tuple": lambda outputs: (outputs.image, outputs.text, outputs.scale, outputs.classes),
    "nested": lambda outputs: {"features": [outputs.image, outputs.text], "rest": (outputs.scale, outputs.classes)},
}


class Clip(nn.Module):
    """Two towers and a logit scale, which doesn't lie along the batch, and integers, which have no gradient."""

    def __init__(self, form: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image, self.text = nn.Linear(4, 3).double(), nn.Linear(2, 3).double()
        self.scale, self.form = nn.Parameter(torch.tensor(0.3, dtype=torch.float64)), form

    def forward(self, first: Tensor, second: Tensor) -> Any:
        image = self.image(first)
        return FORMS[self.form](ClipOutputs(image, self.text(second), self.scale.exp(), image.argmax(1)))


def clip_loss(outputs: Any, targets: Tensor) -> Tensor:
    if isinstance(outputs, dict) and "features" in outputs:
        (image, text), (scale, classes) = outputs["features"], outputs["rest"]
    elif isinstance(outputs, tuple):
        image, text, scale, classes = outputs
    else:
        fields = outputs if isinstance(outputs, dict) else vars(outputs)
        image, text, scale, classes = (fields[name] for name in ("image", "text", "scale", "classes"))
    logits, targets = scale * image @ text.T, targets.argsort()
    assert classes.shape == targets.shape
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2 + 0.1 * scale


@pytest.mark.parametrize("form", FORMS)
def test_outputs_of_any_structure_with_a_scalar(form: str) -> None:
    batch = double_batch(), torch.arange(8)
    net, plain = Clip(form), Clip(form)
    grads = step_gradients(guard_with(net, clip_loss, micro_batch=3), batch, 3)
    assert_gradients(grads, clip_loss(plain(*batch[0]), batch[1]), plain.parameters())


def test_targets_that_are_positions_in_the_whole_batch() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs @ outputs.T, targets)

    plain, batch = plain_net(torch.float64), (double_batch()[0], torch.arange(8).flip(0))
    grads = step_gradients(guard_with(plain_net(torch.float64), loss, micro_batch=4), batch, 2)
    assert_gradients(grads, loss(plain(batch[0]), batch[1]), plain.parameters())


def test_the_same_tensor_twice_in_the_outputs() -> None:
    class Twice(nn.Linear):
        def forward(self, inputs: Tensor) -> Any:
            outputs = super().forward(inputs)
            return {"first": outputs, "second": outputs}

    def loss(outputs: Any, targets: Tensor) -> Tensor:
        return contrastive_loss(outputs["first"], targets) + quantile_loss(outputs["second"], targets)

    torch.manual_seed(0)
    net, batch = Twice(4, 2).double(), double_batch()
    value = loss(net(batch[0]), batch[1])
    expected = torch.autograd.grad(value, list(net.parameters()))
    grads = step_gradients(guard_with(net, loss, micro_batch=2), batch, 4)
    for grad, right in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, right, rtol=1e-12, atol=1e-14)


def test_a_forward_that_returns_outputs_beside_the_loss() -> None:
    inputs, targets = double_batch()
    plain = plain_net(torch.float64)
    guard = guard_with(
        plain_net(torch.float64),
        lambda outputs, batch: contrastive_loss(outputs, batch["y"]),
        forward=lambda model, batch: 2 * model(batch["x"]),
        micro_batch=2,
    )
    grads = step_gradients(guard, {"x": inputs, "y": targets}, 4)
    assert_gradients(grads, contrastive_loss(2 * plain(inputs), targets), plain.parameters())


def test_a_scaler_does_not_change_the_gradients() -> None:
    net, plain, batch = plain_net(torch.float64), plain_net(torch.float64), double_batch()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    grads = step_gradients(guard_with(net, contrastive_loss, micro_batch=2, scaler=scaler), batch, 4)
    assert_gradients(grads, contrastive_loss(plain(batch[0]), batch[1]), plain.parameters())


def test_autocast_covers_both_passes() -> None:
    dtypes: list[torch.dtype] = []
    net = plain_net()
    net.register_forward_hook(lambda _, __, outputs: dtypes.append(outputs.dtype))
    guard = guard_with(net, lambda outputs, targets: contrastive_loss(outputs.float(), targets), precision="amp-bf16")
    guard.step(plain_batch())
    guard.retry_policy.micro_batch = 4
    dtypes.clear()
    assert guard.step(plain_batch()).updated
    assert dtypes == [torch.bfloat16] * 4


def test_the_reported_loss_is_that_of_the_whole_batch() -> None:
    batch = double_batch()
    report = guard_with(plain_net(torch.float64), contrastive_loss, micro_batch=3).step(batch)
    expected = contrastive_loss(plain_net(torch.float64)(batch[0]), batch[1])
    assert float(report.loss) == pytest.approx(float(expected.detach()), rel=1e-12)
    assert not report.loss.requires_grad


def test_accumulated_batches_are_announced_to_be_an_average() -> None:
    guard = guard_of(plain_net(), loss=contrastive_loss)
    guard.step(plain_batch())
    assert guard.notices == ()
    for update in (False, True):
        guard.step(plain_batch(), update=update)
    notice = " ".join(guard.notices)
    assert "which for this loss is not the gradient of one large batch" in notice


class CenterLoss(nn.Module):
    """A loss with state: a moving center and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(2, dtype=torch.float64))
        self.center: Tensor
        self.calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        self.center = 0.9 * self.center + 0.1 * outputs.detach().mean(0)
        return F.mse_loss(outputs - self.center, targets)


def test_a_run_that_is_not_split_calls_its_loss_once_per_step() -> None:
    loss = CenterLoss()
    guard = guard_with(plain_net(torch.float64), loss)
    for seed in range(3):
        guard.step(double_batch(seed))
    assert loss.calls == 3


def test_the_state_of_a_loss_is_part_of_the_step() -> None:
    """The check doesn't change it, a split step changes it once, a retry restores it, and a resumed run has it."""
    expected = CenterLoss()
    expected(plain_net(torch.float64)(double_batch()[0]), double_batch()[1])

    split = CenterLoss()
    guard_with(plain_net(torch.float64), split, micro_batch=4).step(double_batch())
    assert split.calls == 1
    torch.testing.assert_close(split.center, expected.center)

    retried, fail = CenterLoss(), FailingCall(lambda: None, 4)
    net = plain_net(torch.float64)
    net.register_forward_hook(lambda *_: fail())
    guard = guard_with(net, retried, micro_batch=4)
    assert guard.step(double_batch()).retries == 1
    torch.testing.assert_close(retried.center, expected.center)

    resumed = CenterLoss()
    guard_with(plain_net(torch.float64), resumed).load_state_dict(guard.state_dict())
    assert torch.equal(resumed.center, retried.center)


def test_extra_state_that_the_loss_changes_counts_once() -> None:
    seen = [0]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen[0] += len(outputs)
        return contrastive_loss(outputs, targets)

    guard_with(plain_net(), loss, extra_state=(seen,), micro_batch=2).step(plain_batch())
    assert seen == [8]


def test_a_forward_that_changes_its_batch_in_place_is_refused_or_exact() -> None:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        batch[0].div_(2)
        return model(batch[0])

    (inputs, targets), plain = double_batch(), plain_net(torch.float64)
    guard = guard_with(plain_net(torch.float64), contrastive_loss, forward=forward, micro_batch=2)
    try:
        grads = step_gradients(guard, (inputs.clone(), targets), 4)
    except UsageError:
        return
    assert_gradients(grads, contrastive_loss(plain(inputs / 2), targets), plain.parameters())
