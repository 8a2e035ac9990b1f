"""Gradients of two batches for each update, in a script that updates after every batch."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

_MARK = "_oomph_accumulates"


class AccumulatedSteps:
    """Optimizers that update at every second of their steps, as in a loop that accumulates two micro-batches.

    More than two need no more memory. Until the update, gradients are not cleared.
    """

    def __init__(self) -> None:
        self._pending: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # have gradients that wait for an update
        self._updating: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._steps: dict[type[Optimizer], Any] = {}  # those that were replaced

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the steps of optimizers that are built inside, and what clears gradients."""
        init, zero_grad, zero_model = Optimizer.__init__, Optimizer.zero_grad, nn.Module.zero_grad

        @functools.wraps(init)
        def with_accumulation(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._replace_step(type(optimizer))

        @functools.wraps(zero_grad)
        def zero_grad_after_update(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            if optimizer not in self._pending:
                zero_grad(optimizer, *args, **kwargs)

        @functools.wraps(zero_model)
        def zero_model_after_update(model: nn.Module, *args: Any, **kwargs: Any) -> None:
            if not self._waits_for_update(model):
                zero_model(model, *args, **kwargs)

        Optimizer.__init__ = with_accumulation  # type: ignore[method-assign, assignment]
        Optimizer.zero_grad = zero_grad_after_update  # type: ignore[method-assign, assignment]
        nn.Module.zero_grad = zero_model_after_update  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Optimizer.__init__ = init  # type: ignore[method-assign]
            Optimizer.zero_grad = zero_grad  # type: ignore[method-assign]
            nn.Module.zero_grad = zero_model  # type: ignore[method-assign]
            for kind, step in self._steps.items():
                kind.step = step  # type: ignore[method-assign]

    def _replace_step(self, kind: type[Optimizer]) -> None:
        """Replace the step of a class: schedulers and scalers replace that of an object."""
        step: Any = kind.step
        if hasattr(step, _MARK):
            return

        @functools.wraps(step)
        def accumulate(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            if optimizer in self._updating:  # a subclass calls the step of its base
                return step(optimizer, *args, **kwargs)
            if optimizer in self._pending:
                self._updating.add(optimizer)
                try:
                    return step(optimizer, *args, **kwargs)
                finally:
                    self._updating.discard(optimizer)
                    self._pending.discard(optimizer)
            loss = _run_closure(*args, **kwargs)
            self._pending.add(optimizer)
            return loss

        setattr(accumulate, _MARK, True)
        self._steps[kind] = step
        kind.step = accumulate  # type: ignore[method-assign, assignment]

    def _waits_for_update(self, model: nn.Module) -> bool:
        waiting = {
            id(param) for optimizer in self._pending for group in optimizer.param_groups for param in group["params"]
        }
        return any(id(param) in waiting for param in model.parameters())


def _run_closure(closure: Any = None, *_: Any, **__: Any) -> Any:
    """Compute the loss and the gradients, where a script leaves that to the optimizer's step."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
