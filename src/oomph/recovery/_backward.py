"""Backward of a weighted loss.

A product with the weight would cost two kernels, one forward and one back. Backward that begins with the weight instead
of with one gives the same gradients, bit by bit. torch's public way of saying so looks at the given number with tools
that take longer than the kernels, and imports them first; so the function beneath is called, where it is.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd import graph


def differentiate(value: Tensor, weight: float) -> None:
    """Add the gradients of a weighted loss to those that there are."""
    if type(value) is Tensor and value.is_floating_point() and can_begin():
        _begin(value, weight)
    else:
        (value if weight == 1.0 else value * weight).backward()


def _begin(value: Tensor, weight: float) -> None:
    first = torch.full_like(value, weight)
    run: Any = graph._engine_run_backward  # noqa: SLF001  beneath torch.autograd.backward
    keep = create = False  # the graph, for a second time, and one of its own
    run((value,), (first,), keep, create, (), allow_unreachable=True, accumulate_grad=True)


@functools.cache
def can_begin() -> bool:
    """Whether this torch has that function, and it does what is expected: tried on numbers of our own."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        given = torch.ones(2, device="cpu", requires_grad=True)
        try:
            for _ in range(2):
                _begin((given * 3).sum(), 0.25)
        except (AttributeError, TypeError, RuntimeError):
            return False
        return given.grad is not None and given.grad.tolist() == [1.5, 1.5]
