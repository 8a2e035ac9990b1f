"""What timm's loop trains: a task or a model with its loss, and the update."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import UsageError


@dataclass(frozen=True)
class TrainedModel:
    """A task of timm, or a model with its loss.

    Attributes:
        source: the task or the model.
        loss_fn: the loss of a model; None for a task.
        amp_autocast: creates the context in which it runs.
    """

    source: Any
    loss_fn: Callable[[Any, Any], Tensor] | None
    amp_autocast: Callable[[], Any]

    def __post_init__(self) -> None:
        if self.is_task == (self.loss_fn is not None):
            got = "a task and loss_fn" if self.is_task else "a model without loss_fn"
            raise UsageError(f"guard got {got}", "pass a task, which has its loss, or a model and loss_fn")

    @property
    def is_task(self) -> bool:
        """True for a task of `timm.task`."""
        return hasattr(self.source, "get_trainable_module")

    @property
    def module(self) -> nn.Module:
        """The module with the trained parameters, in its DistributedDataParallel if there is one."""
        module: nn.Module = self.source.get_trainable_module() if self.is_task else self.source
        return module

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.module.parameters()).device

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        """The precision of `amp_autocast`; None if it does nothing."""
        with self.amp_autocast():
            kind = self.device.type
            return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None

    def loss(self, module: nn.Module, batch: Any) -> Tensor:
        """Return the loss of a batch, computed with this module in the place of the trained one."""
        inputs, targets = batch
        with self._replaced(module), self.amp_autocast():
            if self.is_task:
                result: Tensor = self.source(inputs, targets)["loss"]
                return result
            assert self.loss_fn is not None  # noqa: S101  it was checked
            return self.loss_fn(module(inputs), targets)

    @contextlib.contextmanager
    def _replaced(self, module: nn.Module) -> Iterator[None]:
        """Let a task run a module without its DistributedDataParallel: the guard averages gradients."""
        if not self.is_task or self.module is module:
            yield
            return
        wrapper = self.source.trainable_module
        self.source.trainable_module = module
        try:
            yield
        finally:
            self.source.trainable_module = wrapper


@dataclass(frozen=True)
class Update:
    """The update of timm's loop, and what follows it.

    Attributes:
        trained: what is trained.
        optimizer: the optimizer.
        loss_scaler: timm's NativeScaler, or None.
        model_ema: the EMA of a model; a task has its own.
        scheduler: timm's scheduler, or None.
        clip_grad: largest gradient, or None.
        clip_mode: "norm", "value" or "agc".
    """

    trained: TrainedModel
    optimizer: Optimizer
    loss_scaler: Any
    model_ema: Any
    scheduler: Any
    clip_grad: float | None
    clip_mode: str

    def run(self, num_updates: int, metric: float | None) -> None:
        """Clip, update, set gradients to None, and update EMA and schedule.

        Args:
            num_updates: number of updates, with this one.
            metric: what a scheduler that needs a metric receives.
        """
        parameters = None if self.clip_grad is None else self._clip_parameters()
        if self.loss_scaler is not None:
            # This backward adds nothing to the gradients of the parameters; the rest is timm's own update.
            nothing = torch.zeros((), device=self.trained.device, requires_grad=True)
            self.loss_scaler(
                nothing, self.optimizer, clip_grad=self.clip_grad, clip_mode=self.clip_mode, parameters=parameters
            )
        else:
            if parameters is not None:
                utils = importlib.import_module("timm.utils")  # of the timm that the caller has imported
                utils.dispatch_clip_grad(parameters, value=self.clip_grad, mode=self.clip_mode)
            self.optimizer.step()
        self.optimizer.zero_grad()
        self._update_ema(num_updates)
        if self.scheduler is not None:
            self.scheduler.step_update(num_updates=num_updates, metric=metric)

    def _clip_parameters(self) -> Any:
        """Return the parameters to clip; adaptive clipping leaves out the head, as timm's train.py does."""
        is_adaptive = "agc" in self.clip_mode
        if self.trained.is_task:
            return self.trained.source.get_clip_parameters(exclude_head=is_adaptive)
        parameters = list(self.trained.module.parameters())
        return parameters[:-2] if is_adaptive else parameters

    def _update_ema(self, num_updates: int) -> None:
        if self.trained.is_task:
            self.trained.source.update_ema(step=num_updates)
        elif self.model_ema is not None:
            model = getattr(self.trained.module, "module", self.trained.module)
            # Only ModelEmaV3 has a warmup, which depends on the step.
            keywords = {"step": num_updates} if "step" in inspect.signature(self.model_ema.update).parameters else {}
            self.model_ema.update(model, **keywords)
