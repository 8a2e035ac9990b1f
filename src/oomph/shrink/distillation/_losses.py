"""Losses between the outputs of a student and of its teacher."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  torch's convention

from ...errors import UsageError

_HALF_DTYPES = (torch.float16, torch.bfloat16)


def soft_targets(temperature: float = 4.0, dim: int = 1) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of a classifier's logits against a teacher's (Hinton, Vinyals and Dean, 2015).

    It is the divergence of the student's probabilities from the teacher's, both softened by the temperature, times the
    square of the temperature, so that the gradient doesn't shrink with it; a mean over samples and positions.

    Args:
        temperature: divisor of the logits; the higher, the more the small probabilities count.
        dim: dimension of the classes, as in torch's cross entropy; -1 for language models.

    Raises:
        UsageError: the temperature is not positive.
    """
    if not 0 < temperature < float("inf"):
        raise UsageError(f"the temperature is {temperature}", "use a number above 0, such as 4")

    def loss(student: Tensor, teacher: Tensor) -> Tensor:
        _check_logits(student, teacher)
        ours, theirs = (F.log_softmax(_as_float(logits) / temperature, dim) for logits in (student, teacher))
        divergence = F.kl_div(ours, theirs, reduction="sum", log_target=True)
        return divergence * (temperature**2 * student.shape[dim] / student.numel())

    return loss


def _check_logits(student: object, teacher: object) -> None:
    if not isinstance(student, Tensor) or not isinstance(teacher, Tensor):
        got = f"a {type(student).__name__} and a {type(teacher).__name__}"
        raise UsageError(f"student and teacher return {got}", "pass distill a loss that reads their logits")
    if student.shape != teacher.shape:
        raise UsageError(
            f"the student's outputs are {tuple(student.shape)} and the teacher's {tuple(teacher.shape)}",
            "use a teacher with the same classes, or pass distill another loss",
        )


def _as_float(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in _HALF_DTYPES else logits
