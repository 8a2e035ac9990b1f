"""A Job with a teacher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ...errors import UsageError
from ...job import Job
from ._losses import soft_targets
from ._model import DistilledModel, DistilledOutputs, frozen_copy

_Loss = Callable[[Any, Any], Tensor]


def distill(
    student: Job, teacher: nn.Module | Callable[[], nn.Module], loss: _Loss | None = None, *, weight: float = 1.0
) -> Job:
    """Return the training of a student with a teacher as a Job, which is predicted, planned and guarded like any other.

    Its model has both: `job.model().student` is the network to keep. Its loss is that of the student's Job plus
    `weight` times `loss`.

    Args:
        student: the training of the student alone.
        teacher: the trained teacher, or a function that builds it. It gets the same inputs. A module is not changed.
        loss: `loss(student_outputs, teacher_outputs)` returns a scalar; `soft_targets()` if None.
        weight: weight of that loss.

    Raises:
        UsageError: the student's Job has a `step`, or an argument has a wrong type.
    """
    own_loss, own_optimizer = _check_student(student)
    if not callable(teacher):  # modules are callable
        raise UsageError(f"the teacher is a {type(teacher).__name__}", "pass a module, or a function that builds it")
    if not 0 <= weight < float("inf"):
        raise UsageError(f"the weight of the teacher is {weight}", "use a number of at least 0")
    teacher_loss = loss or soft_targets()

    def model() -> nn.Module:
        built = frozen_copy(teacher) if isinstance(teacher, nn.Module) else teacher()
        if not isinstance(built, nn.Module):
            raise UsageError(f"the teacher's function returned a {type(built).__name__}", "return an nn.Module")
        return DistilledModel(student.model(), built)

    def total_loss(outputs: Any, targets: Any) -> Tensor:
        if not isinstance(outputs, DistilledOutputs):
            raise UsageError("in eval mode there are no outputs of the teacher", "compute this loss in training mode")
        return own_loss(outputs.student, targets) + weight * teacher_loss(*outputs)

    def optimizer(built: nn.Module) -> Optimizer | Sequence[Optimizer]:
        return own_optimizer(built.get_submodule("student"))

    return replace(student, model=model, loss=total_loss, optimizer=optimizer)


def _check_student(job: Job) -> tuple[_Loss, Callable[[nn.Module], Optimizer | Sequence[Optimizer]]]:
    if not isinstance(job, Job):
        raise UsageError(f"the student is a {type(job).__name__}", "pass the Job that trains it without a teacher")
    if job.loss is None:
        raise UsageError(
            "the student's Job has a step, which computes outputs and loss together",
            "give it a loss(outputs, targets) instead",
        )
    assert job.optimizer is not None  # noqa: S101  Job.__post_init__ checks it
    return job.loss, job.optimizer
