"""The gradient of a split batch is that of the whole batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph

from .nets import plain_batch, plain_net


def gradients(guard_options: dict[str, Any], model: nn.Module, batch: Any, **step: Any) -> list[Tensor]:
    """The gradients of one guarded step, from what SGD at rate 1 did to the weights."""
    before = [one.detach().clone() for one in model.parameters()]
    guard = oomph.guard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), **guard_options)
    guard.step(batch, **step)
    return [old - one.detach() for old, one in zip(before, model.parameters(), strict=True)]


def furthest(one: list[Tensor], other: list[Tensor]) -> float:
    """The largest difference, by the largest entry."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("pieces", [2, 3, 8])
def test_sgd_in_fp32_is_the_unsplit_run(pieces: int) -> None:
    nets = [plain_net(), plain_net()]
    for net, count in zip(nets, (1, pieces), strict=True):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, pieces=count)
        for seed in range(5):
            guard.step(plain_batch(seed=seed))
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert float((a - b).detach().abs().max()) < 1e-6


@pytest.mark.parametrize("pieces", [2, 3, 8])
def test_adamw_in_float64_is_the_plain_loop(pieces: int) -> None:
    net, plain = plain_net(torch.float64), plain_net(torch.float64)
    guard = oomph.guard(
        model=net,
        optimizer=torch.optim.AdamW(net.parameters(), lr=0.01),
        loss=nn.functional.mse_loss,
        pieces=pieces,
        clip=0.3,
    )
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for seed in range(5):
        inputs, targets = plain_batch(seed=seed, dtype=torch.float64)
        guard.step((inputs, targets))
        optimizer.zero_grad()
        nn.functional.mse_loss(plain(inputs), targets).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.3)
        optimizer.step()
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        assert float((a - b).detach().abs().max()) < 1e-8


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
            chosen = (target[:, 0] > 0).unsqueeze(1).expand(-1, 4, -1, -1)
            boxes = (output[:, 1:] - target[:, 1:]).abs()[chosen].sum()
            scores = nn.functional.binary_cross_entropy_with_logits(output[:, 0], target[:, 0], reduction="sum")
            total = total + boxes / positives.clamp(min=1) + scores / (counts[-1] * target[0, 0].numel())
        return total


class NaiveLoss(DetectionLoss):
    """The same loss as everybody writes it, for a guard that knows nothing of positives."""

    normalizer = None  # type: ignore[assignment]

    def __call__(self, outputs: list[Tensor], targets: list[Tensor], counts: tuple[Any, ...] = ()) -> Tensor:
        del counts
        return super().__call__(outputs, targets, DetectionLoss.normalizer(self, (None, targets)))


def detection_batch(samples: int = 16) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(3)
    targets = [torch.randn(samples, 5, side, side, generator=generator) for side in (8, 4)]
    for target in targets:
        # Positives are unevenly spread: the first images are crowded.
        crowd = torch.linspace(0.4, 0.0, samples).view(-1, 1, 1)
        target[:, 0] = (torch.rand(target[:, 0].shape, generator=generator) < crowd).float()
    return torch.randn(samples, 3, 16, 16, generator=generator), targets


def detector() -> Detector:
    torch.manual_seed(0)
    net = Detector()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return net


@pytest.mark.parametrize("pieces", [1, 2, 4, 8])
def test_a_loss_divided_by_positives_is_exact_in_any_number_of_pieces(pieces: int) -> None:
    batch = detection_batch()
    net = detector()
    NaiveLoss()(net(batch[0]), batch[1]).backward()
    whole = [one.grad for one in net.parameters() if one.grad is not None]
    assert furthest(gradients({"loss": DetectionLoss(), "pieces": pieces}, detector(), batch), whole) < 1e-5


def test_the_usual_division_by_the_number_of_pieces_is_not() -> None:
    batch = detection_batch()
    net = detector()
    NaiveLoss()(net(batch[0]), batch[1]).backward()
    whole = [one.grad for one in net.parameters() if one.grad is not None]
    assert furthest(gradients({"loss": NaiveLoss(), "pieces": 4}, detector(), batch), whole) > 1e-2


def token_loss(outputs: Tensor, targets: Tensor) -> oomph.LossSum:
    """Over positions that are not padding; how many those are, only the loss knows."""
    seen = targets > -1
    return oomph.LossSum((outputs - targets).pow(2)[seen].sum(), seen.sum())


@pytest.mark.parametrize("pieces", [1, 2, 4, 8])
@pytest.mark.parametrize("plain", [False, True])
def test_a_sum_is_divided_by_the_whole_count(pieces: int, plain: bool) -> None:  # noqa: FBT001
    def loss(outputs: Tensor, targets: Tensor) -> oomph.LossSum:
        found = token_loss(outputs, targets)
        return oomph.LossSum(found.total, int(found.count)) if plain else found

    inputs, targets = plain_batch(8)
    targets[:2] = -5.0  # the first piece of four has nothing to count
    net = plain_net()
    found = token_loss(net(inputs), targets)
    (found.total / found.count).backward()
    whole = [one.grad for one in net.parameters() if one.grad is not None]
    assert furthest(gradients({"loss": loss, "pieces": pieces}, plain_net(), (inputs, targets)), whole) < 1e-5


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, token_loss])
def test_batches_that_are_accumulated_count_as_one(loss: Any) -> None:
    inputs, targets = plain_batch(12)
    whole = gradients({"loss": loss}, plain_net(), (inputs, targets))
    net = plain_net()
    before = [one.detach().clone() for one in net.parameters()]
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), loss=loss, pieces=2)
    for start, end, update in ((0, 3, False), (3, 5, False), (5, 12, True)):
        report = guard.step((inputs[start:end], targets[start:end]), update=update)
        assert report.updated is update
    found = [old - one.detach() for old, one in zip(before, net.parameters(), strict=True)]
    assert furthest(found, whole) < 1e-5


class Positives:
    """Divided by what the batch tells: one number, or several."""

    def __init__(self, *, several: bool = False) -> None:
        self.several = several

    def normalizer(self, batch: Any) -> Any:
        count = (batch[1] > 0).sum()
        return (count, len(batch[1])) if self.several else count

    def __call__(self, outputs: Tensor, targets: Tensor, count: Any) -> Tensor:
        return (outputs - targets).pow(2)[targets > 0].sum() / (count[0] if self.several else count)


def accumulated(loss: Any, batch: tuple[Tensor, Tensor], pieces: int = 1) -> tuple[list[Any], tuple[str, ...]]:
    net = plain_net(batch[0].dtype)
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), loss=loss, pieces=pieces)
    for start, end in ((0, 3), (3, 5), (5, 12)):
        guard.step((batch[0][start:end], batch[1][start:end]), update=False)
    return [one.grad for one in net.parameters()], guard.notices


def whole_gradients(batch: tuple[Tensor, Tensor]) -> list[Any]:
    net = plain_net(batch[0].dtype)
    outputs, targets = net(batch[0]), batch[1]
    ((outputs - targets).pow(2)[targets > 0].sum() / (targets > 0).sum()).backward()
    return [one.grad for one in net.parameters()]


def test_accumulated_batches_are_weighted_by_their_normaliser() -> None:
    batch = plain_batch(12, dtype=torch.float64)
    found, notices = accumulated(Positives(), batch, pieces=2)
    assert furthest(found, whole_gradients(batch)) < 1e-12
    assert notices == ()


def test_accumulated_batches_with_several_normalisers_are_noticed_once() -> None:
    batch = plain_batch(12, dtype=torch.float64)
    found, notices = accumulated(Positives(several=True), batch)
    assert furthest(found, whole_gradients(batch)) > 1e-2
    assert len([one for one in notices if "several normalizers" in one]) == 1


@pytest.mark.parametrize("several", [False, True])
def test_a_loss_may_want_its_batches_weighted_by_samples(*, several: bool) -> None:
    batch = plain_batch(12, dtype=torch.float64)
    plainly = Positives(several=several)
    expected = [torch.zeros_like(one) for one in plain_net(torch.float64).parameters()]
    for start, end in ((0, 3), (3, 5), (5, 12)):
        part = (batch[0][start:end], batch[1][start:end])
        own = accumulated_once(plainly, part)
        expected = [sum_ + (end - start) / 12 * one for sum_, one in zip(expected, own, strict=True)]
    chosen = Positives(several=several)
    chosen.weight_by_samples = True  # type: ignore[attr-defined]
    found, notices = accumulated(chosen, batch)
    assert furthest(found, expected) < 1e-12
    assert notices == ()


def accumulated_once(loss: Any, batch: tuple[Tensor, Tensor]) -> list[Any]:
    net = plain_net(batch[0].dtype)
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), loss=loss)
    guard.step(batch, update=False)
    return [one.grad for one in net.parameters()]


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_a_whole_number_as_a_count_is_exact_in_double_precision(pieces: int) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> oomph.LossSum:
        return oomph.LossSum((outputs - targets).pow(2)[targets > 0].sum(), (targets > 0).sum())

    batch = plain_batch(12, dtype=torch.float64)
    assert furthest(accumulated(loss, batch, pieces)[0], whole_gradients(batch)) < 1e-13
    net = plain_net(torch.float64)
    assert furthest(gradients({"loss": loss, "pieces": pieces}, net, batch), whole_gradients(batch)) < 1e-13


def test_sparse_gradients_of_sums_are_accumulated() -> None:
    def run(*parts: tuple[int, int]) -> Tensor:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Embedding(10, 4, sparse=True))
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        guard = oomph.guard(
            model=net,
            optimizer=optimizer,
            loss=lambda outputs, targets: oomph.LossSum(
                (outputs - targets).pow(2).sum(), torch.tensor(outputs.numel())
            ),
            pieces=2,
        )
        words, targets = torch.randint(0, 10, (8,)), torch.randn(8, 4)
        for start, end in parts:
            guard.step((words[start:end], targets[start:end]), update=end == 8)
        found: Tensor = net.state_dict()["0.weight"]
        return found

    torch.testing.assert_close(run((0, 3), (3, 8)), run((0, 8)))


def test_gradients_of_a_loop_of_ones_own_are_added_to() -> None:
    inputs, targets = plain_batch(8)
    net = plain_net()
    net(inputs).sum().backward()
    own = [one.grad.clone() for one in net.parameters() if one.grad is not None]
    found = gradients({"loss": nn.functional.mse_loss, "pieces": 2}, net, (inputs, targets))
    alone = gradients({"loss": nn.functional.mse_loss}, plain_net(), (inputs, targets))
    assert furthest([a - b for a, b in zip(found, own, strict=True)], alone) < 1e-5


def test_the_scale_of_mixed_precision_changes_nothing() -> None:
    batch = plain_batch(8)
    whole = gradients({"loss": nn.functional.mse_loss}, plain_net(), batch)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaled = gradients({"loss": token_loss, "pieces": 4, "scaler": scaler}, plain_net(), batch)
    plain = gradients({"loss": token_loss}, plain_net(), batch)
    assert furthest(scaled, plain) < 1e-5
    found = gradients({"loss": nn.functional.mse_loss, "pieces": 4, "scaler": scaler}, plain_net(), batch)
    assert furthest(found, whole) < 1e-5


def test_a_scaler_that_meets_an_infinity_skips_and_says_so() -> None:
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, scaler=scaler, pieces=2)
    before = [one.detach().clone() for one in net.parameters()]
    inputs, targets = plain_batch()
    assert guard.step((inputs * float("inf"), targets)).skipped is True
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert guard.step((inputs, targets)).skipped is False
    assert scaler.get_scale() == 2.0


def test_the_loss_of_the_report_is_that_of_the_whole_batch() -> None:
    inputs, targets = plain_batch(7)
    for loss in (nn.functional.mse_loss, token_loss):
        net = plain_net()
        guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=loss, pieces=3)
        value: Any = loss(net(inputs), targets)
        expected = value.total / value.count if isinstance(value, oomph.LossSum) else value
        assert float(guard.step((inputs, targets)).loss) == pytest.approx(float(expected.detach()), rel=1e-5)
