from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import oomph
from oomph.errors import UsageError
from oomph.shrink import distill, soft_targets
from oomph.shrink.distillation._model import DistilledOutputs

SETTINGS = oomph.Settings(batch=8, size=16)


def network(width: int, classes: int = 10) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * width, classes),
    )


def small_job(classes: int = 10) -> oomph.Job:
    def make_batch(count: int, size: Any) -> tuple[Tensor, Tensor]:
        return torch.rand(count, 3, size, size), torch.arange(count) % classes

    return oomph.Job(
        model=lambda: network(8, classes),
        batch=make_batch,
        loss=F.cross_entropy,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    )


def parts_of(job: oomph.Job) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    model = job.model().double()
    assert job.optimizer is not None
    optimizer = job.optimizer(model)
    assert isinstance(optimizer, torch.optim.Optimizer)
    inputs, targets = job.batch(12, 16)
    return model.train(), optimizer, (inputs.double(), targets)


def with_fixed_norms(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return model


@pytest.mark.parametrize("reduction", [None, "mean"])
def test_a_guarded_step_is_exact_when_it_is_split(reduction: str | None) -> None:
    """In two passes, and in one if the user says that the loss is a mean over samples."""
    job = distill(small_job(), lambda: network(32), weight=0.7)
    states = []
    for micro_batch in (None, 4):
        model, optimizer, batch = parts_of(job)
        guard = oomph.guard(
            model=with_fixed_norms(model),
            optimizer=optimizer,
            loss=job.loss,
            reduction=reduction,
            micro_batch=micro_batch,
        )
        reports = [guard.step(batch) for _ in range(2)]
        guard.close()
        assert [report.micro_batches for report in reports] == [1 if micro_batch is None else 3] * 2
        states.append(model.state_dict())
    for name, expected in states[0].items():
        torch.testing.assert_close(states[1][name], expected, rtol=1e-10, atol=1e-10)


def test_a_loss_over_the_whole_batch_is_not_called_a_mean() -> None:
    """The check sees the teacher's part of the loss, though in eval mode there is none."""

    def spread(student: Tensor, teacher: Tensor) -> Tensor:
        return (student - teacher).square().mean().sqrt() * 10

    job = distill(small_job(), lambda: network(32), spread)
    model, optimizer, batch = parts_of(job)
    with pytest.raises(UsageError, match="not a mean over samples"):
        oomph.guard(
            model=with_fixed_norms(model), optimizer=optimizer, loss=job.loss, reduction="mean", micro_batch=4
        ).step(batch)
    report = oomph.guard(model=model, optimizer=optimizer, loss=job.loss, micro_batch=4).step(batch)  # in two passes
    assert report.micro_batches == 3


def test_the_teacher_never_changes_and_the_student_learns() -> None:
    job = distill(small_job(), lambda: network(32))
    model, optimizer, batch = parts_of(job)
    teacher, student = model.get_submodule("teacher"), model.get_submodule("student")
    before = copy.deepcopy(teacher.state_dict())
    guard = oomph.guard(model=model, optimizer=optimizer, loss=job.loss)
    losses = [guard.step(batch).loss.item() for _ in range(20)]
    guard.close()
    assert losses[-1] < losses[0]
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in teacher.parameters())
    assert not any(module.training for module in teacher.modules())
    assert student.training
    assert not torch.equal(student.get_buffer("1.running_mean"), torch.zeros(8).double())
    model.eval()
    assert torch.equal(model(batch[0]), student(batch[0]))


def test_predictions_count_the_teacher() -> None:
    teacher_bytes = sum(item.numel() * 4 for item in network(256).parameters())
    predictions = {
        name: oomph.predict(job, SETTINGS, "RTX 3060").allocated.value
        for name, job in {
            "alone": small_job(),
            "built": distill(small_job(), lambda: network(256)),
            "live": distill(small_job(), network(256)),
        }.items()
    }
    # The teacher's activations are larger than all of the student's, but not kept for backward.
    activation = 8 * 256 * 16 * 16 * 4
    assert teacher_bytes + activation < predictions["built"] - predictions["alone"] < teacher_bytes + 4 * activation
    assert predictions["live"] == predictions["built"]


def test_a_plan_splits_a_batch_that_fits_only_without_its_teacher() -> None:
    job, settings = small_job(), oomph.Settings(batch=256, size=64)
    taught = distill(job, lambda: network(256))
    need = oomph.predict(job, settings, "RTX 3060").device.high
    plan = oomph.plan(taught, settings, "RTX 3060", budget=int(need))
    assert (plan.settings.micro_batch or 256) < 256
    assert plan.planned_need.device.high <= need


def test_a_live_teacher_is_not_changed() -> None:
    teacher = network(32).train()
    model = distill(small_job(), teacher).model().double().train()
    model(torch.rand(4, 3, 16, 16).double())
    assert all(module.training for module in teacher.modules())
    assert all(parameter.requires_grad and parameter.dtype == torch.float32 for parameter in teacher.parameters())
    assert torch.equal(teacher.get_buffer("1.running_mean"), torch.zeros(32))
    shared = distill(small_job(), teacher).model().get_submodule("teacher")
    assert shared.get_parameter("0.weight").data_ptr() == teacher.get_parameter("0.weight").data_ptr()


def test_the_loss_is_the_sum_of_both() -> None:
    student, teacher, targets = torch.randn(6, 10), torch.randn(6, 10), torch.arange(6)
    job = distill(small_job(), lambda: network(32), F.mse_loss, weight=0.5)
    expected = F.cross_entropy(student, targets) + 0.5 * F.mse_loss(student, teacher)
    assert job.loss is not None
    torch.testing.assert_close(job.loss(DistilledOutputs(student, teacher), targets), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((network(8), network(32)), "the student is a Sequential; pass the Job that trains it without a teacher"),
        ((small_job(), "s.pt"), "the teacher is a str; pass a module, or a function that builds it"),
        (
            (replace(small_job(), loss=None, step=lambda model, batch: model(batch)), network(32)),
            r"the student's Job has a step, .*; give it a loss\(outputs, targets\) instead",
        ),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        distill(*arguments)


def test_a_wrong_weight_or_teacher_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="the weight of the teacher is -1; use a number of at least 0"):
        distill(small_job(), network(32), weight=-1)
    with pytest.raises(UsageError, match=r"the teacher's function returned a str; return an nn\.Module"):
        distill(small_job(), lambda: "s.pt").model()  # type: ignore[arg-type, return-value]
    other = distill(small_job(), lambda: network(32, classes=5))
    with pytest.raises(UsageError, match=r"outputs are \(8, 10\) and the teacher's \(8, 5\); use a teacher with"):
        oomph.predict(other, SETTINGS, "cpu")


def test_soft_targets() -> None:
    loss = soft_targets(2.0)
    student, teacher = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    p, q = (teacher / 2).softmax(1), (student / 2).softmax(1)
    torch.testing.assert_close(loss(student, teacher), 4 * (p * (p / q).log()).sum(1).mean())
    assert abs(loss(teacher + 3, teacher).item()) < 1e-12  # logits are relative
    images = torch.randn(2, 5, 3, 3), torch.randn(2, 5, 3, 3)
    rows = [item.permute(0, 2, 3, 1).reshape(-1, 5) for item in images]
    torch.testing.assert_close(loss(*images), loss(*rows))
    torch.testing.assert_close(soft_targets(2.0, dim=-1)(*rows), loss(*rows))
    with pytest.raises(UsageError, match="the temperature is 0; use a number above 0"):
        soft_targets(0)
    with pytest.raises(UsageError, match="return a dict and a Tensor; pass distill a loss that reads their logits"):
        loss({}, teacher)  # type: ignore[arg-type]
