from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.detect import DetectionLoss, TrainLoss, Yolov5, yolov5
from oomph.detect.model import DistilledDetector, DistillLoss, LossGains, StudentOutputs, student_of
from oomph.detect.model._distillation import attention_map, feature_losses, response_losses
from oomph.errors import UsageError

KINDS = ("response", "feature", "both")
GAINS = LossGains()


def detector(size: str = "n", seed: int = 0, classes: int = 3) -> Yolov5:
    torch.manual_seed(seed)
    model = yolov5(size, classes)
    for layer in model.head.m:  # objects somewhere, so that boxes and classes count
        assert isinstance(layer, nn.Conv2d)
        nn.init.normal_(layer.weight, std=0.5)
        assert layer.bias is not None
        nn.init.normal_(layer.bias, std=2.0)
    return model


def batch(images: int) -> tuple[Tensor, Tensor]:
    gen = torch.Generator().manual_seed(1)
    targets = torch.tensor([[number, number % 3, 0.4, 0.5, 0.3, 0.2] for number in range(images)])
    return torch.rand(images, 3, 64, 96, generator=gen), targets


def distilled(kind: str, teacher: str = "s") -> DistilledDetector:
    return DistilledDetector(detector(), detector(teacher, seed=1), DistillLoss(kind, GAINS))


def with_fixed_norms(model: nn.Module) -> nn.Module:
    """Put BatchNorm into eval mode, whose statistics would depend on the micro-batch."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return model


class SumOfDistillation:
    """The distillation losses alone, as a mean over the images of the whole batch."""

    def normalizer(self, batch: tuple[Tensor, Tensor]) -> int:
        return len(batch[0])

    def __call__(self, outputs: StudentOutputs, targets: Tensor, images: int) -> Tensor:
        del targets
        return outputs.losses.sum() / images


def gradients(model: nn.Module, loss: Any, data: tuple[Tensor, Tensor], micro_batch: int | None) -> dict[str, Tensor]:
    """Return the update of a guarded step of SGD."""
    model = copy.deepcopy(model)
    parameters = {name: item for name, item in model.named_parameters() if item.requires_grad}
    before = {name: item.detach().clone() for name, item in parameters.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=1.0)
    guard = oomph.guard(model=model, optimizer=optimizer, loss=loss, split="yolo", micro_batch=micro_batch)
    report = guard.step(data)
    guard.close()
    assert report.micro_batches == (1 if micro_batch is None else len(data[0]) // micro_batch)
    return {name: before[name] - item.detach() for name, item in parameters.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_that_is_its_teacher_has_no_loss(kind: str) -> None:
    student = detector().eval()
    model = with_fixed_norms(DistilledDetector(student, copy.deepcopy(student), DistillLoss(kind, GAINS)).train())
    losses = model(batch(2)[0]).losses
    assert losses.shape == (2,)
    assert losses.abs().max() < 1e-5
    other = with_fixed_norms(DistilledDetector(student, detector(seed=5), DistillLoss(kind, GAINS)).train())
    assert other(batch(2)[0]).losses.min() > 0.01


def test_the_gain_multiplies_the_loss_and_both_is_the_sum() -> None:
    images = batch(2)[0]
    losses = {kind: with_fixed_norms(distilled(kind))(images).losses for kind in KINDS}
    torch.testing.assert_close(losses["both"], losses["response"] + losses["feature"])
    stronger = DistilledDetector(detector(), detector("s", seed=1), DistillLoss("both", GAINS, gain=3.0))
    torch.testing.assert_close(with_fixed_norms(stronger)(images).losses, 3 * losses["both"])


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
def test_split_steps_have_the_gradient_of_the_whole_batch(kind: str) -> None:
    model = with_fixed_norms(distilled(kind).double())
    images, targets = batch(6)
    data = images.double(), targets
    whole, split = (gradients(model, SumOfDistillation(), data, micro_batch) for micro_batch in (None, 2))
    assert max(float(item.abs().max()) for item in whole.values()) > 1e-3
    for name, expected in whole.items():
        torch.testing.assert_close(split[name], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.medium
def test_the_training_loss_with_a_teacher_is_exact_when_split() -> None:
    model = with_fixed_norms(distilled("both"))
    student = student_of(model)
    loss = TrainLoss(DetectionLoss(student, imgsz=96), torch.device("cpu"), distills=True)
    data = batch(4)
    loss.start_step(data, update_images=4)
    whole = gradients(model, loss, data, None)
    parts = loss.totals(include_step=True)
    split = gradients(model, loss, data, 2)
    assert loss.totals(include_step=True) == pytest.approx(parts, rel=1e-5)
    assert len(parts) == 4
    assert parts[3] == pytest.approx(model(data[0]).losses.mean().item(), rel=1e-5)
    for name, expected in whole.items():
        torch.testing.assert_close(split[name], expected, rtol=1e-3, atol=1e-7 + 1e-4 * float(expected.abs().max()))


def test_the_teacher_never_changes() -> None:
    model = distilled("both").train()
    before = copy.deepcopy(model.teacher.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs = model(batch(2)[0])
    (outputs.losses.sum() + outputs.levels[0].square().mean()).backward()
    optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in model.teacher.state_dict().items())
    assert all(parameter.grad is None for parameter in model.teacher.parameters())
    assert all(parameter.grad is not None for parameter in model.student.parameters())
    assert model.student.training
    assert not any(module.training for module in model.teacher.modules())


def test_in_eval_mode_it_is_the_student() -> None:
    model = distilled("both").eval()
    images = batch(2)[0]
    predictions, levels = model(images)
    expected, expected_levels = model.student(images)
    assert torch.equal(predictions, expected)
    assert all(map(torch.equal, levels, expected_levels))


def test_the_state_dict_is_the_students() -> None:
    model, other = distilled("both"), DistilledDetector(detector(seed=7), detector("s"), DistillLoss("both", GAINS))
    state = model.state_dict()
    assert {name.partition(".")[0] for name in state} == {"student"}
    other.load_state_dict(state)
    assert all(torch.equal(value, state[name]) for name, value in other.state_dict().items())
    with pytest.raises(RuntimeError, match=r"Missing key.*student"):
        other.load_state_dict({})
    assert student_of(other) is other.student
    assert student_of(other.student) is other.student


def test_boxes_and_classes_are_learned_where_the_teacher_sees_objects() -> None:
    gen = torch.Generator().manual_seed(0)
    teacher = [torch.randn(1, 3, side, side, 8, generator=gen) for side in (8, 4, 2)]
    for level in teacher:
        level[..., 4] = -20.0  # background
    teacher[0][0, 1, 2, 3, 4] = 20.0
    student = [torch.randn(level.shape, generator=gen).requires_grad_() for level in teacher]
    anchors = detector().head.anchors
    response_losses(student, teacher, anchors, GAINS).sum().backward()
    for number, level in enumerate(student):
        assert level.grad is not None
        learned = level.grad[..., [0, 1, 2, 3, 5, 6, 7]].abs().amax(-1) > 1e-6
        assert learned.nonzero().tolist() == ([[0, 1, 2, 3]] if number == 0 else [])
        assert (level.grad[..., 4] != 0).all()  # background is learned as objectness


def test_one_class_is_not_learned() -> None:
    student = [torch.zeros(1, 3, 2, 2, 6, requires_grad=True) for _ in range(3)]
    teacher = [torch.ones(1, 3, 2, 2, 6) for _ in range(3)]
    response_losses(student, teacher, detector().head.anchors, GAINS).sum().backward()
    for level in student:
        assert level.grad is not None
        assert not level.grad[..., 5].any()
        assert level.grad[..., :5].any()


def test_features_are_compared_by_where_they_are_strong() -> None:
    gen = torch.Generator().manual_seed(0)
    feature = torch.randn(2, 4, 6, 5, generator=gen)
    scaled = torch.cat((feature, -feature), 1) * torch.tensor([2.0, 9.0]).view(2, 1, 1, 1)  # other channels and scales
    ours, same, other = (attention_map(item) for item in (feature, scaled, feature.flip(2)))
    assert feature_losses([ours], [same]).abs().max() < 1e-6
    assert feature_losses([ours], [other]).min() > 0.01


def test_an_unknown_loss_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="distill is 'logits'; choose one of response, feature, both"):
        DistillLoss("logits", GAINS)
