"""Keras models as Jobs, on generated batches of their inputs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import keras
import torch
from torch import Tensor

from ..adapters import FrameworkJob
from ..errors import UsageError
from ..job import Job, resize_batch
from ..settings import Settings, Size, environment_allocator

_BATCH = 32  # the default of fit()
_SPARSE = "sparse"  # in the name of a loss of class numbers
_OPTIMIZERS: dict[str, Any] = {
    "SGD": torch.optim.SGD,
    "RMSprop": torch.optim.RMSprop,
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "Nadam": torch.optim.NAdam,
    "Adamax": torch.optim.Adamax,
    "Adagrad": torch.optim.Adagrad,
}


def job_of_model(model: Any) -> FrameworkJob:
    """Return what a compiled model trains, with batches of 32 samples unless settings say otherwise.

    Raises:
        UsageError: it is not a compiled model with known shapes of its inputs.
    """
    if not isinstance(model, keras.Model) or getattr(model, "optimizer", None) is None:
        raise UsageError(f"a {type(model).__name__} that isn't compiled can't be predicted", "call model.compile()")
    inputs = getattr(model, "inputs", None)
    if not inputs or any(side is None for tensor in inputs for side in tensor.shape[1:]):
        raise UsageError("the model's inputs have no fixed shapes", "build it with keras.Input(shape)")
    inputs_of = _Generated(inputs)
    targets_of = _Generated(model.outputs, is_sparse=_is_sparse(model.loss))

    def batch(samples: int, size: Size) -> Any:
        del size
        return {"x": inputs_of(samples), "y": targets_of(samples), "sample_weight": None}

    job = Job(model=lambda: model, batch=batch, step=_step, optimizer=_optimizer_of(model.optimizer))
    return FrameworkJob(job, Settings(batch=_BATCH, allocator=environment_allocator()))


def job_of_batch(model: Any, batch: Any, samples: int) -> FrameworkJob:
    """Return what a model trains with batches like an example, a dict with x, y and sample_weight."""
    job = Job(
        model=lambda: model,
        batch=lambda count, _: resize_batch(batch, samples, count),
        step=_step,
        optimizer=_optimizer_of(model.optimizer),
    )
    return FrameworkJob(job, Settings(batch=samples, allocator=environment_allocator()))


def run_model(model: Any, x: Any, *, training: bool) -> Any:
    """Return the outputs of a model, whose `call` may have no argument `training`."""
    return model(x, training=training) if "training" in inspect.signature(model.call).parameters else model(x)


def _step(model: Any, batch: Any) -> Tensor:
    outputs = run_model(model, batch["x"], training=True)
    loss: Tensor = model.compute_loss(batch["x"], batch["y"], outputs, batch["sample_weight"])
    return loss


class _Generated:
    """Creates tensors of symbolic ones for any number of samples; class numbers for sparse losses."""

    def __init__(self, symbolic: Sequence[Any], *, is_sparse: bool = False) -> None:
        self._is_sparse = is_sparse
        self._shapes = [(tuple(tensor.shape[1:]), str(tensor.dtype)) for tensor in symbolic]

    def __call__(self, samples: int) -> Any:
        tensors = [self._tensor(samples, shape, dtype) for shape, dtype in self._shapes]
        return tensors if len(tensors) > 1 else tensors[0]

    def _tensor(self, samples: int, shape: tuple[int, ...], dtype: str) -> Tensor:
        if self._is_sparse:
            return torch.zeros(samples, *shape[:-1], dtype=torch.long)
        return torch.zeros(samples, *shape, dtype=torch.long if "int" in dtype else torch.float32)


def _is_sparse(loss: Any) -> bool:
    parts = keras.tree.flatten(loss)
    return any(_SPARSE in (part if isinstance(part, str) else str(getattr(part, "name", ""))).lower() for part in parts)


def _optimizer_of(optimizer: Any) -> Any:
    """Return what builds torch's optimizer with as many states per weight as Keras's."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # without loss scaling
    build = _OPTIMIZERS.get(type(inner).__name__)
    if build is None:
        names = ", ".join(_OPTIMIZERS)
        raise UsageError(f"the memory of the optimizer {type(inner).__name__} is not known", f"use one of {names}")
    options = {"momentum": momentum} if (momentum := getattr(inner, "momentum", 0)) else {}
    return lambda model: build([param for param in model.parameters() if param.requires_grad], lr=1e-3, **options)
