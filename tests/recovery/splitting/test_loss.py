"""The gradient of a split or accumulated batch is that of the whole batch, for every kind of loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery import Guard

from ..faults import in_split_check
from ..nets import guard_of, plain_batch, plain_guard, plain_net

mse_loss = nn.functional.mse_loss


def sgd_guard(model: nn.Module, loss: Any, **options: Any) -> Guard:
    return oomph.guard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), loss=loss, **options)


def gradients(model: nn.Module, loss: Any, batch: Any, **options: Any) -> list[Tensor]:
    """Return the gradients of a guarded step: the change of the weights by SGD with a learning rate of 1."""
    before = [param.detach().clone() for param in model.parameters()]
    sgd_guard(model, loss, **options).step(batch)
    return [old - param.detach() for old, param in zip(before, model.parameters(), strict=True)]


def backward_gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    """Return the gradients of a plain backward."""
    loss.backward()
    return [param.grad for param in model.parameters() if param.grad is not None]


def max_difference(grads: list[Any], expected: list[Any]) -> float:
    """Return the largest difference, relative to the largest entry of each tensor."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(grads, expected, strict=True))


def max_weight_difference(net: nn.Module, expected: nn.Module) -> float:
    pairs = zip(net.parameters(), expected.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.mark.parametrize("micro_batch", [4, 3, 1])
def test_sgd_in_float32_equals_the_unsplit_run(micro_batch: int) -> None:
    nets = [plain_net(), plain_net()]
    for net, size in zip(nets, (None, micro_batch), strict=True):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        guard = oomph.guard(model=net, optimizer=optimizer, loss=mse_loss, micro_batch=size)
        for seed in range(5):
            guard.step(plain_batch(seed=seed))
    assert max_weight_difference(*nets) < 1e-6


@pytest.mark.parametrize("micro_batch", [4, 3, 1])
def test_adamw_in_float64_equals_a_plain_loop(micro_batch: int) -> None:
    net, plain = plain_net(torch.float64), plain_net(torch.float64)
    guard = oomph.guard(
        model=net,
        optimizer=torch.optim.AdamW(net.parameters(), lr=0.01),
        loss=mse_loss,
        micro_batch=micro_batch,
        clip_grad_norm=0.3,
    )
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for seed in range(5):
        inputs, targets = plain_batch(seed=seed, dtype=torch.float64)
        guard.step((inputs, targets))
        optimizer.zero_grad()
        mse_loss(plain(inputs), targets).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.3)
        optimizer.step()
    assert max_weight_difference(net, plain) < 1e-8


class Detector(nn.Module):
    """Two scales of boxes and scores, with BatchNorm in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.heads = nn.ModuleList([nn.Conv2d(8, 5, 1), nn.Conv2d(8, 5, 3, 2, 1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        return [head(x) for head in self.heads]


class DetectionLoss:
    """Boxes and classes divided by the positives of their scale, scores by all cells: several normalizers."""

    def normalizer(self, batch: Any) -> tuple[Any, ...]:
        _, targets = batch
        return (*((scale[:, 0] > 0).sum() for scale in targets), len(targets[0]))

    def __call__(self, outputs: list[Tensor], targets: list[Tensor], counts: tuple[Any, ...]) -> Tensor:
        total = torch.zeros(())
        for output, target, positives in zip(outputs, targets, counts, strict=False):
            is_positive = (target[:, 0] > 0).unsqueeze(1).expand(-1, 4, -1, -1)
            boxes = (output[:, 1:] - target[:, 1:]).abs()[is_positive].sum()
            scores = nn.functional.binary_cross_entropy_with_logits(output[:, 0], target[:, 0], reduction="sum")
            total = total + boxes / positives.clamp(min=1) + scores / (counts[-1] * target[0, 0].numel())
        return total


class NaiveDetectionLoss(DetectionLoss):
    """The usual form of the loss, in which the guard can't see the positives."""

    normalizer = None  # type: ignore[assignment]

    def __call__(self, outputs: list[Tensor], targets: list[Tensor], counts: tuple[Any, ...] = ()) -> Tensor:
        del counts
        return super().__call__(outputs, targets, DetectionLoss.normalizer(self, (None, targets)))


def detection_batch(samples: int = 16) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(3)
    targets = [torch.randn(samples, 5, side, side, generator=generator) for side in (8, 4)]
    for target in targets:
        # Positives are unevenly distributed: most are in the first images.
        density = torch.linspace(0.4, 0.0, samples).view(-1, 1, 1)
        target[:, 0] = (torch.rand(target[:, 0].shape, generator=generator) < density).float()
    return torch.randn(samples, 3, 16, 16, generator=generator), targets


def detector() -> Detector:
    torch.manual_seed(0)
    net = Detector()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return net


def expected_detection_gradients(batch: tuple[Tensor, list[Tensor]]) -> list[Tensor]:
    net = detector()
    return backward_gradients(net, NaiveDetectionLoss()(net(batch[0]), batch[1]))


@pytest.mark.parametrize("micro_batch", [16, 8, 4, 2])
def test_a_loss_divided_by_positives_is_exact_in_micro_batches_of_any_size(micro_batch: int) -> None:
    batch = detection_batch()
    grads = gradients(detector(), DetectionLoss(), batch, micro_batch=micro_batch)
    assert max_difference(grads, expected_detection_gradients(batch)) < 1e-5


def test_the_same_loss_without_a_normalizer_is_exact_in_two_passes() -> None:
    batch = detection_batch()
    grads = gradients(detector(), NaiveDetectionLoss(), batch, micro_batch=4)
    assert max_difference(grads, expected_detection_gradients(batch)) < 1e-5


def test_a_declared_mean_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"micro_batch=4 would change the gradient.*it is not a mean over samples"):
        gradients(detector(), NaiveDetectionLoss(), detection_batch(), micro_batch=4, reduction="mean")


def token_loss(outputs: Tensor, targets: Tensor) -> oomph.LossSum:
    """Sum over positions that aren't padding; only the loss knows how many there are."""
    is_token = targets > -1
    return oomph.LossSum((outputs - targets).pow(2)[is_token].sum(), is_token.sum())


def token_loss_with_int(outputs: Tensor, targets: Tensor) -> oomph.LossSum:
    loss = token_loss(outputs, targets)
    return oomph.LossSum(loss.total, int(loss.count))


@pytest.mark.parametrize("micro_batch", [8, 4, 2, 1])
@pytest.mark.parametrize("loss", [token_loss, token_loss_with_int])
def test_a_loss_sum_is_divided_by_the_count_of_the_whole_batch(micro_batch: int, loss: Any) -> None:
    inputs, targets = plain_batch(8)
    targets[:2] = -5.0  # with four micro-batches, the first one has nothing to count
    net = plain_net()
    value = token_loss(net(inputs), targets)
    expected = backward_gradients(net, value.total / value.count)
    grads = gradients(plain_net(), loss, (inputs, targets), micro_batch=micro_batch)
    assert max_difference(grads, expected) < 1e-5


@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("micro_batch", [8, 4, 2])
def test_the_divisor_of_a_loss_sum_is_at_least_its_smallest_one(micro_batch: int, tokens: int) -> None:
    inputs, targets = plain_batch(8)
    targets[tokens:] = -5.0
    net = plain_net()
    value = token_loss(net(inputs), targets)
    expected = backward_gradients(net, value.total / value.count.clamp(min=3))  # type: ignore[union-attr]

    def loss(outputs: Tensor, targets: Tensor) -> oomph.LossSum:
        part = token_loss(outputs, targets)
        return oomph.LossSum(part.total, part.count, min_count=3)

    grads = gradients(plain_net(), loss, (inputs, targets), micro_batch=micro_batch)
    assert max_difference(grads, expected) < 1e-5


@pytest.mark.parametrize("loss", [mse_loss, token_loss])
def test_accumulated_batches_count_as_one_batch(loss: Any) -> None:
    inputs, targets = plain_batch(12)
    expected = gradients(plain_net(), loss, (inputs, targets))
    net = plain_net()
    before = [param.detach().clone() for param in net.parameters()]
    guard = sgd_guard(net, loss, micro_batch=2)
    for start, end, update in ((0, 3, False), (3, 5, False), (5, 12, True)):
        report = guard.step((inputs[start:end], targets[start:end]), update=update)
        assert report.updated is update
    grads = [old - param.detach() for old, param in zip(before, net.parameters(), strict=True)]
    assert max_difference(grads, expected) < 1e-5


class PositivesLoss:
    """Is divided by the positives of the whole batch: a single normalizer, or one of two."""

    def __init__(self, *, several: bool = False, weight_by_samples: bool = False) -> None:
        self.several, self.weight_by_samples = several, weight_by_samples

    def normalizer(self, batch: Any) -> Any:
        count = (batch[1] > 0).sum()
        return (count, len(batch[1])) if self.several else count

    def __call__(self, outputs: Tensor, targets: Tensor, count: Any) -> Tensor:
        return (outputs - targets).pow(2)[targets > 0].sum() / (count[0] if self.several else count)


def accumulated_gradients(
    loss: Any,
    batch: tuple[Tensor, Tensor],
    parts: tuple[tuple[int, int], ...] = ((0, 3), (3, 5), (5, 12)),
    micro_batch: int | None = None,
) -> list[Any]:
    net = plain_net(batch[0].dtype)
    guard = sgd_guard(net, loss, micro_batch=micro_batch)
    for start, end in parts:
        guard.step((batch[0][start:end], batch[1][start:end]), update=False)
    return [param.grad for param in net.parameters()]


def expected_positives_gradients(batch: tuple[Tensor, Tensor]) -> list[Tensor]:
    net = plain_net(batch[0].dtype)
    outputs, targets = net(batch[0]), batch[1]
    return backward_gradients(net, (outputs - targets).pow(2)[targets > 0].sum() / (targets > 0).sum())


def test_accumulated_batches_are_weighted_by_a_single_normalizer() -> None:
    batch = plain_batch(12, dtype=torch.float64)
    grads = accumulated_gradients(PositivesLoss(), batch, micro_batch=2)
    assert max_difference(grads, expected_positives_gradients(batch)) < 1e-12


def test_accumulated_batches_with_several_normalizers_are_not_exact() -> None:
    batch = plain_batch(12, dtype=torch.float64)
    grads = accumulated_gradients(PositivesLoss(several=True), batch)
    assert max_difference(grads, expected_positives_gradients(batch)) > 1e-2


@pytest.mark.parametrize("several", [False, True])
def test_a_loss_can_request_that_batches_are_weighted_by_samples(*, several: bool) -> None:
    batch = plain_batch(12, dtype=torch.float64)
    expected = [torch.zeros_like(param) for param in plain_net(torch.float64).parameters()]
    for start, end in ((0, 3), (3, 5), (5, 12)):
        part = accumulated_gradients(PositivesLoss(several=several), batch, parts=((start, end),))
        expected = [total + (end - start) / 12 * grad for total, grad in zip(expected, part, strict=True)]
    grads = accumulated_gradients(PositivesLoss(several=several, weight_by_samples=True), batch)
    assert max_difference(grads, expected) < 1e-12


@pytest.mark.parametrize("micro_batch", [None, 4, 2])
def test_an_integer_count_is_exact_in_double_precision(micro_batch: int | None) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> oomph.LossSum:
        return oomph.LossSum((outputs - targets).pow(2)[targets > 0].sum(), (targets > 0).sum())

    batch = plain_batch(12, dtype=torch.float64)
    expected = expected_positives_gradients(batch)
    assert max_difference(accumulated_gradients(loss, batch, micro_batch=micro_batch), expected) < 1e-13
    grads = gradients(plain_net(torch.float64), loss, batch, micro_batch=micro_batch)
    assert max_difference(grads, expected) < 1e-13


def test_sparse_gradients_of_loss_sums_are_accumulated() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> oomph.LossSum:
        return oomph.LossSum((outputs - targets).pow(2).sum(), torch.tensor(outputs.numel()))

    def run(*parts: tuple[int, int]) -> Tensor:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Embedding(10, 4, sparse=True))
        tokens, targets = torch.randint(0, 10, (8,)), torch.randn(8, 4)
        guard = sgd_guard(net, loss, micro_batch=2)
        for start, end in parts:
            guard.step((tokens[start:end], targets[start:end]), update=end == 8)
        return net.state_dict()["0.weight"]

    torch.testing.assert_close(run((0, 3), (3, 8)), run((0, 8)))


def test_gradients_of_the_users_own_backward_are_added() -> None:
    batch = plain_batch(8)
    net = plain_net()
    before = [grad.clone() for grad in backward_gradients(net, net(batch[0]).sum())]
    grads = gradients(net, mse_loss, batch, micro_batch=4)
    expected = gradients(plain_net(), mse_loss, batch)
    assert max_difference([a - b for a, b in zip(grads, before, strict=True)], expected) < 1e-5


@pytest.mark.parametrize("loss", [mse_loss, token_loss])
def test_a_scaler_does_not_change_the_gradients(loss: Any) -> None:
    batch = plain_batch(8)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    grads = gradients(plain_net(), loss, batch, micro_batch=2, scaler=scaler)
    assert max_difference(grads, gradients(plain_net(), loss, batch)) < 1e-5


def test_a_scaler_skips_an_update_with_infinite_gradients() -> None:
    net = plain_net()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    guard = sgd_guard(net, mse_loss, scaler=scaler, micro_batch=4)
    before = [param.detach().clone() for param in net.parameters()]
    inputs, targets = plain_batch()
    assert guard.step((inputs * float("inf"), targets)).skipped is True
    assert all(map(torch.equal, before, net.parameters()))
    assert guard.step((inputs, targets)).skipped is False
    assert scaler.get_scale() == 2.0


@pytest.mark.parametrize("loss", [mse_loss, token_loss])
def test_the_reported_loss_is_that_of_the_whole_batch(loss: Any) -> None:
    inputs, targets = plain_batch(7)
    net = plain_net()
    value: Any = loss(net(inputs), targets)
    expected = value.total / value.count if isinstance(value, oomph.LossSum) else value
    report = sgd_guard(net, loss, micro_batch=3).step((inputs, targets))
    assert float(report.loss) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert not report.loss.requires_grad


def test_a_loss_that_is_not_a_scalar_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"the loss is a tensor of shape \(8, 2\); return a scalar tensor"):
        plain_guard(lambda outputs, targets: outputs - targets).step(plain_batch())
    with pytest.raises(UsageError, match="the loss is a float"):
        plain_guard(lambda outputs, targets: 1.0).step(plain_batch())


def test_a_loss_that_is_a_view_does_not_keep_the_whole_tensor_alive() -> None:
    """torch's mse_loss returns a scalar that can be a view of all its terms."""
    terms = torch.ones(4096, requires_grad=True)
    report = plain_guard(forward=lambda model, batch: terms[0] * 1 + 0 * model(batch[0]).sum()).step(plain_batch())
    assert report.loss.untyped_storage().nbytes() <= 512
    report = plain_guard(forward=lambda model, batch: (terms + 0 * model(batch[0]).sum())[0]).step(plain_batch())
    assert report.loss.untyped_storage().nbytes() <= 512


@pytest.mark.parametrize("loss", [token_loss, token_loss_with_int])
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_batches_without_anything_to_count_change_nothing(loss: Any, micro_batch: int | None) -> None:
    inputs, targets = plain_batch(4)
    empty = inputs, torch.full_like(targets, -5)
    expected = gradients(plain_net(), loss, (inputs, targets))
    net = plain_net()
    guard = sgd_guard(net, loss, micro_batch=micro_batch)
    assert float(guard.step(empty, update=False).loss) == 0
    guard.step(empty, update=False)
    guard.step((inputs, targets), update=False)
    assert max_difference([param.grad for param in net.parameters()], expected) < 1e-6


def test_gradients_that_the_user_sets_to_none_are_forgotten() -> None:
    net, batch = plain_net(), plain_batch()
    guard = guard_of(net)
    guard.step(plain_batch(seed=2), update=False)
    net.zero_grad()
    guard.step(batch, update=False)
    plain = plain_net()
    expected = backward_gradients(plain, nn.functional.mse_loss(plain(batch[0]), batch[1]))
    assert max_difference([param.grad for param in net.parameters()], expected) < 1e-6


def test_a_loss_must_be_a_sum_for_all_micro_batches_or_for_none() -> None:
    values = iter([False, True])

    def loss(outputs: Tensor, targets: Tensor) -> Tensor | oomph.LossSum:
        mean = nn.functional.mse_loss(outputs, targets)
        return oomph.LossSum(mean, 1) if not in_split_check() and next(values) else mean

    with pytest.raises(UsageError, match="LossSum for some micro-batches and a tensor for others"):
        plain_guard(forward=lambda model, batch: loss(model(batch[0]), batch[1]), loss=None, micro_batch=4).step(
            plain_batch()
        )
