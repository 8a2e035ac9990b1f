"""torch's own losses as sums with counts: added over micro-batches, they are the loss of the whole batch."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.losses import LossSum, TorchLoss, torch_loss

F = nn.functional

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using a target size"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(), dtype=torch.float64)


def uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator(), dtype=torch.float64)


def classes(*shape: int, ignored: int | None = None) -> Tensor:
    """Return class numbers below 5; the last third of the samples is ignored."""
    targets = torch.randint(0, 5, shape, generator=generator())
    if ignored is not None:
        targets[-(shape[0] // 3) :] = ignored
        targets[1] = ignored
    return targets


def signs(*shape: int) -> Tensor:
    return 2.0 * (normal(*shape) > 0) - 1.0


WEIGHT = torch.tensor([0.5, 2.0, 1.0, 0.1, 3.0], dtype=torch.float64)
LOGITS, IMAGES, VALUES = normal(9, 5), normal(9, 5, 2, 3), normal(9, 4)
MULTI_LABELS = torch.tensor([[3, 0, -1, 1, 4], [0, -1, 1, 2, 3], [4, 2, 1, -1, 0]] * 3)

CASES: dict[str, tuple[Any, Tensor, Tensor]] = {
    "mse": (F.mse_loss, VALUES, 2 * uniform(9, 4)),
    "mse, broadcast": (functools.partial(F.mse_loss), VALUES, uniform(9, 1)),
    "mse, vector": (F.mse_loss, normal(9), uniform(9)),
    "l1": (F.l1_loss, VALUES, uniform(9, 4)),
    "huber": (functools.partial(F.huber_loss, delta=0.3), VALUES, uniform(9, 4)),
    "smooth l1": (functools.partial(F.smooth_l1_loss, beta=0.3), VALUES, uniform(9, 4)),
    "bce": (F.binary_cross_entropy, uniform(9, 4), 1 - uniform(9, 4)),
    "bce, weights per class": (
        functools.partial(F.binary_cross_entropy, weight=WEIGHT[:4]),
        uniform(9, 4),
        uniform(9, 4),
    ),
    "logits": (F.binary_cross_entropy_with_logits, VALUES, uniform(9, 4)),
    "logits, pos_weight": (
        functools.partial(F.binary_cross_entropy_with_logits, pos_weight=WEIGHT, weight=WEIGHT.flip(0)),
        LOGITS,
        uniform(9, 5),
    ),
    "cross entropy": (F.cross_entropy, LOGITS, classes(9)),
    "cross entropy, weights": (functools.partial(F.cross_entropy, weight=WEIGHT), LOGITS, classes(9)),
    "cross entropy, ignored": (F.cross_entropy, LOGITS, classes(9, ignored=-100)),
    "cross entropy, weights and ignored": (
        functools.partial(F.cross_entropy, weight=WEIGHT, ignore_index=2),
        LOGITS,
        classes(9, ignored=2),
    ),
    "cross entropy, smoothing": (
        functools.partial(F.cross_entropy, label_smoothing=0.1, weight=WEIGHT),
        LOGITS,
        classes(9, ignored=-100),
    ),
    "cross entropy, images": (
        functools.partial(F.cross_entropy, weight=WEIGHT, ignore_index=255),
        IMAGES,
        classes(9, 2, 3, ignored=255),
    ),
    "cross entropy, probabilities": (F.cross_entropy, LOGITS, uniform(9, 5).softmax(1)),
    "cross entropy, probabilities and weights": (
        functools.partial(F.cross_entropy, weight=WEIGHT),
        IMAGES,
        uniform(9, 5, 2, 3).softmax(1),
    ),
    "nll": (F.nll_loss, LOGITS.log_softmax(1), classes(9)),
    "nll, weights and ignored": (
        functools.partial(F.nll_loss, weight=WEIGHT, ignore_index=-1),
        LOGITS.log_softmax(1),
        classes(9, ignored=-1),
    ),
    "nll, images": (F.nll_loss, IMAGES.log_softmax(1), classes(9, 2, 3, ignored=-100)),
    "kl": (F.kl_div, LOGITS.log_softmax(1), uniform(9, 5).softmax(1)),
    "kl, log targets": (
        functools.partial(F.kl_div, log_target=True),
        LOGITS.log_softmax(1),
        uniform(9, 5).log_softmax(1),
    ),
    "poisson": (functools.partial(F.poisson_nll_loss, full=True), VALUES, 3 * uniform(9, 4)),
    "soft margin": (F.soft_margin_loss, VALUES, signs(9, 4)),
    "hinge": (F.hinge_embedding_loss, VALUES, signs(9, 4)),
    "multi margin": (F.multi_margin_loss, LOGITS, classes(9)),
    "multi margin, weights": (functools.partial(F.multi_margin_loss, weight=WEIGHT, p=2), LOGITS, classes(9)),
    "multi-label margin": (F.multilabel_margin_loss, LOGITS, MULTI_LABELS),
    "multi-label soft margin": (F.multilabel_soft_margin_loss, LOGITS, uniform(9, 5).round()),
    "multi-label soft margin, weights": (
        functools.partial(F.multilabel_soft_margin_loss, weight=WEIGHT),
        LOGITS,
        uniform(9, 5).round(),
    ),
}
MODULES: dict[str, tuple[nn.Module, Tensor, Tensor]] = {
    "mse": (nn.MSELoss(), VALUES, uniform(9, 4)),
    "l1": (nn.L1Loss(), VALUES, uniform(9, 4)),
    "huber": (nn.HuberLoss(delta=0.3), VALUES, uniform(9, 4)),
    "smooth l1": (nn.SmoothL1Loss(beta=0.3), VALUES, uniform(9, 4)),
    "bce": (nn.BCELoss(weight=WEIGHT), uniform(9, 5), 1 - uniform(9, 5)),
    "logits": (nn.BCEWithLogitsLoss(pos_weight=WEIGHT), LOGITS, uniform(9, 5)),
    "cross entropy": (
        nn.CrossEntropyLoss(weight=WEIGHT, ignore_index=2, label_smoothing=0.1),
        LOGITS,
        classes(9, ignored=2),
    ),
    "nll": (nn.NLLLoss(weight=WEIGHT, ignore_index=1), LOGITS.log_softmax(1), classes(9, ignored=1)),
    "kl": (nn.KLDivLoss(log_target=True), LOGITS.log_softmax(1), uniform(9, 5).log_softmax(1)),
    "poisson": (nn.PoissonNLLLoss(full=True), VALUES, 3 * uniform(9, 4)),
    "soft margin": (nn.SoftMarginLoss(), VALUES, signs(9, 4)),
    "hinge": (nn.HingeEmbeddingLoss(margin=0.5), VALUES, signs(9, 4)),
    "multi margin": (nn.MultiMarginLoss(p=2, margin=0.7, weight=WEIGHT), LOGITS, classes(9)),
    "multi-label margin": (nn.MultiLabelMarginLoss(), LOGITS, MULTI_LABELS),
    "multi-label soft margin": (nn.MultiLabelSoftMarginLoss(weight=WEIGHT), LOGITS, uniform(9, 5).round()),
}


def split_value(loss: TorchLoss, outputs: Tensor, targets: Tensor, size: int) -> Tensor:
    """Return the loss of a batch from those of its micro-batches."""
    parts = [loss.sum(*pair) for pair in zip(outputs.split(size), targets.split(size), strict=True)]
    total = torch.stack([part.total for part in parts]).sum()
    if loss.reduction == "sum":
        return total
    return total / sum(part.count for part in parts)


def check(loss: Any, outputs: Tensor, targets: Tensor) -> None:
    """Compare values and gradients of micro-batches of several sizes with those of the whole batch."""
    recognized = torch_loss(loss)
    assert recognized is not None
    assert recognized.can_split(outputs, targets)
    inputs = outputs.clone().requires_grad_()
    expected = loss(inputs, targets)
    (grad,) = torch.autograd.grad(expected, inputs)
    for size in (9, 5, 1):
        inputs = outputs.clone().requires_grad_()
        value = split_value(recognized, inputs, targets, size)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(torch.autograd.grad(value, inputs)[0], grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reduction", [None, "mean", "sum"])
@pytest.mark.parametrize("name", CASES)
def test_functions_add_up(name: str, reduction: str | None) -> None:
    loss, outputs, targets = CASES[name]
    if reduction is not None:
        keywords = loss.keywords if isinstance(loss, functools.partial) else {}
        function = loss.func if isinstance(loss, functools.partial) else loss
        loss = functools.partial(function, **keywords, reduction=reduction)
    check(loss, outputs, targets)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", MODULES)
def test_modules_add_up(name: str, reduction: str) -> None:
    module, outputs, targets = MODULES[name]
    module.reduction = reduction  # type: ignore[assignment]
    check(module, outputs, targets)
    assert module.reduction == reduction


@pytest.mark.parametrize(
    "loss", [nn.KLDivLoss(reduction="batchmean"), functools.partial(F.kl_div, reduction="batchmean")]
)
def test_the_batch_mean_of_kl_divergence_adds_up(loss: Any) -> None:
    check(loss, LOGITS.log_softmax(1), uniform(9, 5).softmax(1))


def test_every_loss_of_torch_is_a_case() -> None:
    assert {type(module) for module, _, _ in MODULES.values()} == set(oomph.losses._MODULES)
    functions = {getattr(loss, "func", loss) for loss, _, _ in CASES.values()}
    assert functions == set(oomph.losses._FUNCTIONS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("loss", "outputs", "targets"),
    [
        (F.mse_loss, 100 * normal(3000, 4), normal(3000, 4)),
        (nn.CrossEntropyLoss(), 10 * normal(9000, 5), classes(9000)),
    ],
    ids=["mse", "cross entropy"],
)
def test_sums_in_half_precision_do_not_overflow(
    loss: Any, outputs: Tensor, targets: Tensor, dtype: torch.dtype
) -> None:
    """The squares add up to 1e8, and the largest float16 is 65504."""
    outputs = outputs.to(dtype)
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    recognized = torch_loss(loss)
    assert recognized is not None
    value = split_value(recognized, outputs, targets, 1000)
    assert value.dtype == torch.float32
    whole = loss(outputs.double(), targets.double() if targets.is_floating_point() else targets)
    torch.testing.assert_close(value.double(), whole, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(weight=WEIGHT.half()), nn.BCEWithLogitsLoss(pos_weight=WEIGHT.half())],
    ids=["cross entropy", "logits"],
)
def test_losses_with_weights_in_half_precision_need_two_passes(loss: Any) -> None:
    assert torch_loss(loss) is None


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_a_micro_batch_in_which_everything_is_ignored_counts_nothing(weight: Tensor | None) -> None:
    loss = torch_loss(nn.CrossEntropyLoss(weight=weight))
    assert loss is not None
    part = loss.sum(LOGITS, torch.full((9,), -100))
    assert float(part.total) == float(part.count) == 0


class LoudLoss(nn.MSELoss):
    """Does something else than its base."""


def hooked(register: str) -> nn.Module:
    loss = nn.MSELoss()
    getattr(loss, register)(lambda *_: None)
    return loss


OTHER_LOSSES: dict[str, Any] = {
    "none": None,
    "function": lambda outputs, targets: F.mse_loss(outputs, targets) / 2,
    "subclass": LoudLoss(),
    "forward hook": hooked("register_forward_hook"),
    "forward pre-hook": hooked("register_forward_pre_hook"),
    "no reduction": nn.MSELoss(reduction="none"),
    "partial with positions": functools.partial(F.mse_loss, torch.zeros(2)),
    "deprecated": functools.partial(F.mse_loss, size_average=False),
    "ctc": nn.CTCLoss(),
    "triplets": nn.TripletMarginLoss(),
    "container": nn.Sequential(nn.MSELoss()),
    "not hashable": [],
}


@pytest.mark.parametrize("name", OTHER_LOSSES)
def test_other_losses_are_not_recognized(name: str) -> None:
    assert torch_loss(OTHER_LOSSES[name]) is None


def test_a_replaced_forward_is_not_recognized() -> None:
    loss = nn.MSELoss()
    loss.forward = lambda outputs, targets: (outputs - targets).amax()  # type: ignore[method-assign,assignment]
    assert torch_loss(loss) is None


@pytest.mark.parametrize("shape", [(9, 1), (9, 5), (1, 5), (5,), ()])
def test_elementwise_weights_along_the_batch_cannot_be_split(shape: tuple[int, ...]) -> None:
    loss = torch_loss(nn.BCEWithLogitsLoss(weight=torch.ones(shape)))
    assert loss is not None
    assert loss.has_elementwise_weights
    assert loss.can_split(LOGITS, LOGITS) is (shape[:1] != (9,))


def test_outputs_without_a_batch_cannot_be_split() -> None:
    loss = torch_loss(F.mse_loss)
    assert loss is not None
    assert not loss.has_elementwise_weights
    assert not loss.can_split(torch.tensor(1.0), torch.tensor(1.0))
    assert not loss.can_split([LOGITS], LOGITS)


def test_the_reduction_of_a_module_is_restored_after_an_error() -> None:
    module = nn.CrossEntropyLoss()
    loss = torch_loss(module)
    assert loss is not None
    with pytest.raises(ValueError, match="batch_size"):
        loss.sum(LOGITS, classes(3))
    assert module.reduction == "mean"


def test_a_loss_sum_is_a_value() -> None:
    assert oomph.LossSum is LossSum
    with pytest.raises(AttributeError):
        LossSum(torch.zeros(()), 1).count = 2  # type: ignore[misc]
