"""A student and its teacher as one module."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import nn


class DistilledOutputs(NamedTuple):
    """Outputs of both networks for the same inputs; the teacher's have no gradient."""

    student: Any
    teacher: Any


class DistilledModel(nn.Module):
    """A student and its teacher. In eval mode it is the student alone.

    The teacher is always in eval mode and never has gradients. It runs first, so that its temporary memory is free
    again when the student's activations are stored.

    Args:
        student: the network to train.
        teacher: another one for the same inputs; it is frozen.
    """

    def __init__(self, student: nn.Module, teacher: nn.Module) -> None:
        super().__init__()
        self.student = student
        self.teacher = teacher.requires_grad_(requires_grad=False).eval()

    def train(self, mode: bool = True) -> DistilledModel:  # noqa: FBT001, FBT002  torch's signature
        """Set the mode of the student."""
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the student's outputs in eval mode, DistilledOutputs in training mode."""
        if not self.training:
            return self.student(*args, **kwargs)
        with torch.no_grad():
            teacher = self.teacher(*args, **kwargs)
        return DistilledOutputs(self.student(*args, **kwargs), teacher)


def frozen_copy(module: nn.Module) -> nn.Module:
    """Return a copy of a module that shares its weights, so that freezing and moving it leaves the module as it is."""
    shared: dict[int, Any] = {id(item): nn.Parameter(item.data, requires_grad=False) for item in module.parameters()}
    return copy.deepcopy(module, {**shared, **{id(item): item for item in module.buffers()}})
