"""What a Trainer of Lightning trains, as a Job. Lightning is imported only through the Trainer's own package."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters import FrameworkJob
from ..batch import count_samples
from ..errors import UsageError
from ..job import Job, resize_batch
from ..recovery import RngSnapshot
from ..settings import Settings, environment_allocator

PRECISIONS = {"bf16-mixed": "amp-bf16", "16-mixed": "amp-fp16", "bf16-true": "bf16"}


def describe(trainer: Any, model: Any = None, data: Any = None) -> FrameworkJob:
    """Return what a Trainer trains, and how, for `oomph.predict` and `oomph.plan`; nothing is changed.

    `oomph.predict(trainer)` works once the Trainer has its model, after the start of `fit`. Before, pass the arguments
    of `fit` here: `oomph.predict(describe(trainer, model, loader))`.

    Args:
        trainer: the Trainer.
        model: the LightningModule; by default the Trainer's.
        data: a loader, or a LightningDataModule after its `setup`; by default what `fit` was called with, or the
            module's `train_dataloader`.

    Raises:
        UsageError: it is no Trainer, or model or data are missing.
    """
    if not hasattr(trainer, "fit_loop"):
        raise UsageError(
            f"a {type(trainer).__name__} can't be predicted alone", "pass describe(trainer, model, data) to predict"
        )
    model = trainer.lightning_module if model is None else model
    if model is None:
        raise UsageError("the Trainer has no model before fit()", "pass describe(trainer, model, data) to predict")
    batch = _first_batch(trainer, model, data)
    return describe_module(trainer, model, batch, count_samples(batch))


def describe_module(trainer: Any, module: Any, batch: Any, samples: int) -> FrameworkJob:
    """Return what a Trainer trains, for one of its batches."""
    optimizers = trainer.strategy.optimizers if trainer.lightning_module is module else []

    def build_optimizers(model: nn.Module) -> Any:
        with _attached(model, trainer):
            configured = model.configure_optimizers()  # type: ignore[operator]
        core = importlib.import_module(f"{package_of(trainer.fit_loop)}.core.optimizer")
        return core._configure_optimizers(configured)[0]  # noqa: SLF001  it knows all forms of the result

    def step(model: nn.Module, batch: Any) -> Tensor:
        with _attached(model, trainer):
            names = training_step_arguments(trainer, model)
            outputs = model.training_step(batch, *([0] if "batch_idx" in names else []))  # type: ignore[operator]
        loss: Tensor = outputs["loss"] if isinstance(outputs, Mapping) else outputs
        return loss

    steps = trainer.accumulate_grad_batches
    return FrameworkJob(
        Job(
            model=lambda: module,
            batch=lambda n, _: resize_batch(batch, samples, n),
            optimizer=(lambda _: optimizers) if optimizers else build_optimizers,
            step=step,
        ),
        Settings(
            batch=samples * steps,
            micro_batch=samples if steps > 1 else None,
            precision=PRECISIONS.get(trainer.precision, "fp32"),
            allocator=environment_allocator(),
        ),
    )


@contextlib.contextmanager
def _attached(model: Any, trainer: Any) -> Iterator[None]:
    """Let a traced copy of a module see its Trainer, and log nothing."""
    before = dict(vars(model))
    model.__dict__.update(_trainer=trainer, log=lambda *_, **__: None, log_dict=lambda *_, **__: None)
    try:
        yield
    finally:
        for name in ("_trainer", "log", "log_dict"):
            if name in before:
                model.__dict__[name] = before[name]
            else:
                del model.__dict__[name]


def training_step_arguments(trainer: Any, model: Any) -> list[str]:
    """Return which arguments training_step has besides the batch."""
    helpers = importlib.import_module(f"{package_of(trainer.fit_loop)}.utilities.signature_utils")
    takes, step = helpers.is_param_in_hook_signature, model.training_step
    # Lightning passes batch_idx under any name as the second argument, and dataloader_iter by its name only.
    names = ["batch_idx"] if takes(step, "batch_idx", min_args=2) else []
    return [*names, "dataloader_iter"] if takes(step, "dataloader_iter", explicit=True) else names


def _first_batch(trainer: Any, model: Any, data: Any) -> Any:
    """Return the first batch of a loader, and leave random states as they were."""
    package = package_of(trainer.fit_loop)
    if data is None:
        source = trainer.fit_loop._data_source  # noqa: SLF001
        data = source.dataloader() if source.instance is not None else model
    loader = data.train_dataloader() if hasattr(data, "train_dataloader") else data
    if loader is None:
        raise UsageError("there is no training data", "pass describe(trainer, model, data) to predict")
    combined = importlib.import_module(f"{package}.utilities.combined_loader").CombinedLoader(loader)
    restore_rng = RngSnapshot(torch.device("cpu")).capture()
    try:
        batch, *_ = next(iter(combined), (None,))
    finally:
        restore_rng()
    if batch is None:
        raise UsageError("the loader has no batch", "pass one that has")
    return batch


def package_of(loop: Any) -> str:
    """Return the package that defines a loop: lightning.pytorch or pytorch_lightning."""
    return type(loop).__module__.partition(".loops")[0]
