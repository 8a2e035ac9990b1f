"""The guarded training step of Keras models on torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import torch
from torch import Tensor

from ..errors import UsageError
from ..monitor import watch
from ..recovery import Guard, check_options, record_plan
from ..recovery import guard as guard_training
from ._keras_job import job_of_batch, run_model
from ._micro_batch_plan import plan_micro_batch

OPTIONS = ("inexact", "split", "samples", "micro_batch", "cooldown_steps", "snapshot", "nvtx")
_MASK = "_keras_mask"  # an attribute of tensors
_MEANS = (None, "sum_over_batch_size", "mean")


class KerasGuard:
    """The guard of a model's training steps, which `guarded` returns.

    Args:
        model: a compiled model.
        record: where to write the Record.
        checkpoint: where to save when the guard gives up.
        budget: memory that training may use.
        options: further options of `oomph.guard`.

    Attributes:
        guard: the guard; None before the first batch. After `compile()` there is another one.
    """

    def __init__(
        self,
        model: Any,
        record: str | os.PathLike[str] | None,
        checkpoint: str | os.PathLike[str] | None,
        budget: int | str | None,
        options: Mapping[str, Any],
    ) -> None:
        check_supported(model)
        unknown = next((name for name in options if name not in OPTIONS), None)
        if unknown is not None:
            raise UsageError(
                f"guard_options contains {unknown!r}, which guarded() sets itself or doesn't know",
                f"use {', '.join(OPTIONS)}",
            )
        if checkpoint is not None and Path(checkpoint).suffix != ".keras":
            raise UsageError(f"checkpoint is {os.fspath(checkpoint)!r}", "use a name that ends with .keras")
        check_options(budget=budget, checkpoint=checkpoint, **options)
        self._model, self._record, self._checkpoint = model, record, checkpoint
        self._options, self._budget = dict(options), budget
        self._stack = contextlib.ExitStack()
        self._recorder: Any = None
        self._tracker: Any = None
        self.guard: Guard | None = None

    def __enter__(self) -> KerasGuard:  # noqa: PYI034  Self came with Python 3.11
        with contextlib.ExitStack() as stack:
            if self._record is not None:
                self._recorder = stack.enter_context(watch(self._record))
            self._model.train_step = self._train_step  # it hides the method of the model's class
            stack.callback(delattr, self._model, "train_step")
            stack.callback(self._close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def _start(self, batch: Mapping[str, Any]) -> Guard:
        """Create the guard for batches like the first one."""
        model = self._model
        steps = 0 if self.guard is None else self.guard.steps
        self._close()
        if model.jit_compile:
            raise UsageError("a compiled train step can't be guarded", "pass jit_compile=False to model.compile()")
        variables, options, is_mean = model.trainable_variables, self._options, _is_mean(model.loss)
        if self._budget is not None:
            options = {**options, **self._planned(batch)}
        guard = guard_training(
            model=model,
            # Keras updates the weights: this one names them.
            optimizer=torch.optim.SGD([variable.value for variable in variables], lr=0.0),
            forward=_forward if is_mean else _forward_with_losses,
            loss=self._loss,
            reduction="mean" if is_mean else None,
            metrics=lambda result, _: {name: (_detached(result[name]),) for name in ("outputs", "masks")},
            scaler=_LossScale(model.optimizer),
            extra_state=(_Variables(_untrained(model)),),
            checkpoint=None if self._checkpoint is None else self._save,
            recorder=self._recorder,
            **options,
        )
        guard.steps = steps
        return guard

    def _close(self) -> None:
        if self.guard is not None:
            self.guard.close()

    def _planned(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the budget and the micro-batch that is planned for it."""
        model = self._model
        plan = plan_micro_batch(
            job_of_batch(model, dict(batch), _count(batch["x"])),
            torch.device(next(model.parameters()).device),
            self._budget or 0,
            live=model.parameters(),
            held=sum(variable.value.nbytes for variable in model.metrics_variables),
        )
        if self._recorder is not None:
            record_plan(self._recorder, plan)
        micro_batch = self._options.get("micro_batch") or plan.settings.micro_batch
        return {"budget": plan.budget + plan.reserved, "micro_batch": micro_batch}

    def _loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Tensor:
        loss: Tensor = self._model.compute_loss(batch["x"], batch["y"], _masked(outputs), batch["sample_weight"])
        return loss

    def _train_step(self, data: Any) -> Any:
        """Train on a batch, as `keras.Model.train_step` does; the gradients are computed in micro-batches."""
        model = self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        batch = {"x": x, "y": y, "sample_weight": sample_weight}
        tracker = model._loss_tracker  # noqa: SLF001  `model.metrics` may be overridden
        if self.guard is None or tracker is not self._tracker:  # compile() creates another one
            self.guard, self._tracker = self._start(batch), tracker
        model.zero_grad()
        metrics = _Variables(model.metrics_variables)
        before = metrics.state_dict()
        report = self.guard.backward(batch)
        outputs = _masked({name: _joined(parts) for name, parts in report.metrics.items()})
        weights = model.trainable_weights[:]
        with torch.no_grad():
            if report.micro_batches > 1:  # compute_loss updates metrics, such as the loss of each output
                metrics.load_state_dict(before)
                model.compute_loss(x, y, outputs, sample_weight)
            tracker.update_state(report.loss.detach(), sample_weight=_count(x))
            model.optimizer.apply([variable.value.grad for variable in weights], weights)
        return model.compute_metrics(x, y, outputs, sample_weight=sample_weight)

    def _save(self, _: Guard) -> str:
        path = os.fspath(self._checkpoint or "")
        self._model.save(path)
        return path


def _forward(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Run the model and return its outputs with their masks, which are attributes that copies of tensors lose.

    Dropout and BatchNormalization follow the mode that the guard puts the model into.
    """
    outputs = run_model(model, batch["x"], training=model.training)
    masks = {number: getattr(leaf, _MASK, None) for number, leaf in enumerate(keras.tree.flatten(outputs))}
    return {"outputs": outputs, "masks": {str(number): mask for number, mask in masks.items() if mask is not None}}


def _forward_with_losses(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return also the losses that layers add, so that the check refuses two passes if they depend on the samples.

    The loss of two passes is computed after those without gradients. Weight regularizers are the same for all samples.
    """
    result = _forward(model, batch)
    return {**result, "losses of layers": {str(number): loss for number, loss in enumerate(model.losses)}}


def _masked(result: Mapping[str, Any]) -> Any:
    """Return the outputs of `_forward` with their masks, which Keras's losses and metrics read from them."""
    leaves = keras.tree.flatten(result["outputs"])
    for number, mask in result["masks"].items():
        setattr(leaves[int(number)], _MASK, mask)
    return result["outputs"]


class _Variables:
    """Values of Keras variables: statistics, states of random generators, metrics."""

    def __init__(self, variables: Iterable[Any]) -> None:
        self._variables = list(variables)

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the values."""
        return {str(number): variable.value.detach().clone() for number, variable in enumerate(self._variables)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Set the values."""
        with torch.no_grad():
            for number, variable in enumerate(self._variables):
                variable.value.copy_(state[str(number)])


class _LossScale:
    """The loss scaling of a Keras optimizer in the form of a GradScaler; Keras unscales in its update."""

    def __init__(self, optimizer: Any) -> None:
        self.scale: Callable[[Tensor], Tensor] = optimizer.scale_loss

    def unscale_(self, optimizer: Any) -> None:
        """Leave the gradients scaled."""

    def step(self, optimizer: Any) -> None:
        """Leave the update to Keras."""

    def update(self) -> None:
        """Leave the factor to Keras."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the factor changes only in updates."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore nothing."""


def check_supported(model: Any) -> None:
    """Check that the training of a model can be guarded.

    Raises:
        UsageError: the model is not compiled, or trains in a way of its own.
    """
    if not isinstance(model, keras.Model):
        raise UsageError(f"a {type(model).__name__} can't be guarded", "pass a keras.Model")
    if getattr(model, "optimizer", None) is None:
        raise UsageError("the model has no optimizer", "call model.compile() first")
    if type(model).train_step is not keras.Model.train_step:
        raise UsageError(
            f"{type(model).__name__} has a train_step of its own, which can't be split",
            "override compute_loss instead, or use oomph.guard in it",
        )
    if keras.distribution.distribution() is not None:
        raise UsageError("distributed training of Keras can't be guarded", "train on one device")


def _count(x: Any) -> int:
    return int(next(leaf for leaf in keras.tree.flatten(x) if leaf is not None).shape[0])


def _is_mean(loss: Any) -> bool:
    """Return True if all losses of a model are means over samples, as Keras's are by default."""
    return all(getattr(part, "reduction", None) in _MEANS for part in keras.tree.flatten(loss))


def _untrained(model: Any) -> list[Any]:
    trained = {id(variable) for variable in model.trainable_variables}
    return [*(variable for variable in model.variables if id(variable) not in trained), *model.metrics_variables]


def _detached(outputs: Any) -> Any:
    return keras.tree.map_structure(torch.detach, outputs)


def _joined(parts: tuple[Any, ...]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return keras.tree.map_structure(lambda *tensors: torch.cat(tensors), *parts)
