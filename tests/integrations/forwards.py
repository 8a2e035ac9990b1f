"""Out-of-memory errors at chosen forwards of a module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ..recovery.faults import CUDA_OOM, in_split_check


class Forwards:
    """Runs out of memory at chosen forwards in training mode, counted from 1; those of the split check don't count.

    It is a forward pre-hook of a module.

    Args:
        failing: the numbers of the forwards that fail.
        from_then_on: all forwards after the first of them fail, too.
    """

    def __init__(self, failing: Iterable[int] = (), *, from_then_on: bool = False) -> None:
        self.failing, self.from_then_on = frozenset(failing), from_then_on
        self.count = self.raised = 0

    def __call__(self, module: nn.Module, *_: Any) -> None:
        if in_split_check() or not module.training:
            return
        self.count += 1
        if self.count in self.failing or (self.from_then_on and self.raised):
            self.raised += 1
            raise torch.OutOfMemoryError(CUDA_OOM)
