"""The training job, defined by functions so that nothing is allocated before it is needed. No torch at import."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .errors import MissingFile, UsageError, describe, quote
from .settings import Size

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


@dataclass(frozen=True)
class Job:
    """A training job.

    Attributes:
        model: builds the module.
        batch: `batch(n, size)` returns n samples as any nested structure of tensors. With `loss`, it returns a pair of
            inputs and targets.
        loss: `loss(outputs, targets)` returns a scalar.
        optimizer: `optimizer(model)` returns the optimizer with its parameter groups, or a list of optimizers.
        step: replaces `loss`; `step(model, batch)` runs the model and returns the loss.
        mask_fraction: the largest fraction of elements that data-dependent operations (a boolean mask, `nonzero`, NMS)
            keep. A trace has no data and uses this value. The default, 1, is the worst case.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int, Size], Any]
    loss: Callable[[Any, Any], Tensor] | None = None
    optimizer: Callable[[nn.Module], Optimizer | Sequence[Optimizer]] | None = None
    step: Callable[[nn.Module, Any], Tensor] | None = None
    mask_fraction: float = 1.0

    def __post_init__(self) -> None:
        for name in ("model", "batch", "optimizer"):
            if not callable(getattr(self, name)):
                raise UsageError(f"the Job's {name} is {quote(getattr(self, name))}", f"set {name} to a function")
        if (self.loss is None) == (self.step is None):
            got = "neither a loss nor a step" if self.loss is None else "both a loss and a step"
            raise UsageError(f"the Job has {got}", "set exactly one of the two")
        if not 0 < self.mask_fraction <= 1:
            raise UsageError(
                f"the Job's mask_fraction is {quote(self.mask_fraction)}", "set it to a number above 0 and at most 1"
            )

    @classmethod
    def of(
        cls,
        model: nn.Module,
        batch: Any,
        *,
        loss: Callable[[Any, Any], Tensor] | None = None,
        optimizer: Optimizer | Sequence[Optimizer] | Callable[[nn.Module], Optimizer],
        step: Callable[[nn.Module, Any], Tensor] | None = None,
        samples: int | None = None,
    ) -> Job:
        """Return a Job for live objects. Predicting it changes none of them.

        Args:
            model: the model.
            batch: an example batch. It is repeated and cut to the predicted number of samples; the predicted `size`
                has no effect.
            loss: as for a Job.
            optimizer: the optimizer, several, or a function that builds it.
            step: as for a Job.
            samples: samples in the example; by default the first dimension of its first tensor.
        """
        count = samples or next(_leading_sizes(batch), 0)
        if count < 1:
            raise UsageError(
                "the example batch has no tensor with a first dimension", "set samples to its number of samples"
            )
        return cls(
            model=lambda: model,
            batch=lambda n, _: resize_batch(batch, count, n),
            loss=loss,
            optimizer=optimizer if callable(optimizer) else lambda _: optimizer,
            step=step,
        )

    def run(self, model: nn.Module, batch: Any) -> Tensor:
        """Run the forward pass and the loss of one micro-batch."""
        if self.step is not None:
            return self.step(model, batch)
        inputs, targets = batch
        return self.loss_of(self.outputs(model, inputs), targets)

    def outputs(self, model: nn.Module, inputs: Any) -> Any:
        """Run the model."""
        args, kwargs = model_arguments(inputs)
        return model(*args, **kwargs)

    def loss_of(self, outputs: Any, targets: Any) -> Tensor:
        """Return the loss of outputs.

        Raises:
            UsageError: the Job has a `step`, which computes outputs and loss together.
        """
        if self.loss is None:
            raise UsageError("two passes need the outputs of the model", "give the Job a loss instead of a step")
        return self.loss(outputs, targets)


def model_arguments(inputs: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the arguments of a model: a mapping's entries by name, those of a sequence by position, or the value."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, (tuple, list)) else (inputs,)), {}


def resize_batch(batch: Any, samples: int, count: int) -> Any:
    """Return a batch of `samples` samples repeated and cut to `count` samples.

    Tensors and lists with one entry per sample are resized; everything else stays as it is.
    """
    if hasattr(batch, "shape") and hasattr(batch, "repeat"):
        if len(batch.shape) == 0 or batch.shape[0] != samples:
            return batch
        repeated = batch.repeat(-(-count // samples), *(1 for _ in batch.shape[1:]))
        return repeated if count % samples == 0 else repeated[:count].clone()
    if isinstance(batch, Mapping):
        resized = copy.copy(batch)
        for name, value in batch.items():
            resized[name] = resize_batch(value, samples, count)  # type: ignore[index]  # a dict or the like
        return resized
    if isinstance(batch, list) and len(batch) == samples and samples not in _leading_sizes(batch):
        return (batch * -(-count // samples))[:count]
    if isinstance(batch, (list, tuple)):
        items = [resize_batch(item, samples, count) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch


def _leading_sizes(batch: Any) -> Iterator[int]:
    """Yield the first dimension of each tensor of a batch."""
    if hasattr(batch, "shape"):
        yield from tuple(batch.shape[:1])
    elif isinstance(batch, (Mapping, list, tuple)):
        for item in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _leading_sizes(item)


def load_job(reference: str) -> Job:
    """Return the Job that the function named by `path/to/file.py:function` returns.

    The file's folder is on the import path while the file runs and while the Job's functions run.

    Raises:
        MissingFile: the file does not exist.
        UsageError: the reference is malformed, the file or the function fails or exits, or the result is not a Job.
    """
    job, folder = _call_function(reference, "a Job")
    return _importing_from(folder, _check_job(reference, job))


def load_dataset(reference: str) -> Any:
    """Return the dataset that the function named by `path/to/file.py:function` returns.

    Raises:
        MissingFile: the file does not exist.
        UsageError: the reference is malformed, the file or the function fails or exits, or the result is no dataset.
    """
    dataset, _ = _call_function(reference, "a dataset")
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise UsageError(
            f"{reference} returned a value of type {type(dataset).__name__}",
            "return a dataset with __getitem__ and __len__",
        )
    return dataset


def load_job_and_metric(job: str, metric: str) -> tuple[Job, Callable[..., Any]]:
    """Return the Job that one function returns, and another function; their file runs once if it is the same.

    The folders of the files stay on the import path, and the Job's functions are unchanged, so that torch's own losses
    are recognized. This is for a process that runs nothing else.

    Raises:
        MissingFile: a file does not exist.
        UsageError: a reference is malformed, a file or the first function fails or exits, or the result is not a Job.
    """
    names: dict[str, dict[str, Any]] = {}
    functions = []
    for reference, what in ((job, "a Job"), (metric, "a metric")):
        file, name = _parse_reference(reference, what)
        if file not in names:
            sys.path.insert(0, _folder_of(file))
            names[file] = _run_file(file)
        functions.append(_find_function(names[file], file, name, what))
    return _check_job(job, _call(job, functions[0], fix="fix the function")), functions[1]


def _call_function(reference: str, what: str) -> tuple[Any, str]:
    """Return what a function of a file returns, and the file's folder."""
    file, name = _parse_reference(reference, what)
    folder = _folder_of(file)
    with _on_path(folder):
        function = _find_function(_run_file(file), file, name, what)
        return _call(reference, function, fix="fix the function"), folder


def _parse_reference(reference: str, what: str) -> tuple[str, str]:
    """Return the file and the name of a function."""
    from pathlib import Path  # noqa: PLC0415  only the command line needs it

    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UsageError(
            f"{quote(reference)} does not name {what}",
            f"write path/to/file.py:function, a function that returns {what}",
        )
    if not Path(file).is_file():
        raise MissingFile(f"the file {quote(file, 200)} does not exist", "check the path")
    return file, name


def _folder_of(file: str) -> str:
    from pathlib import Path  # noqa: PLC0415

    return str(Path(file).resolve().parent)


def _run_file(file: str) -> dict[str, Any]:
    """Run a file and return its global names."""
    import runpy  # noqa: PLC0415

    names: dict[str, Any] = _call(file, lambda: runpy.run_path(file), fix="fix the file")
    return names


def _find_function(names: dict[str, Any], file: str, name: str, what: str) -> Callable[..., Any]:
    function = names.get(name)
    if not callable(function):
        raise UsageError(f"{file} has no function {quote(name)}", f"name a function of that file that returns {what}")
    return function  # type: ignore[no-any-return]  # callable() narrows to less


def _check_job(reference: str, job: object) -> Job:
    if not isinstance(job, Job):
        raise UsageError(f"{reference} returned a value of type {type(job).__name__}", "return an oomph.Job")
    return job


def _importing_from(folder: str, job: Job) -> Job:
    """Return the Job with functions that can import the files of a folder."""

    def bind(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with _on_path(folder):
                return function(*args)

        return call

    functions: dict[str, Any] = {name: getattr(job, name) for name in ("model", "batch", "loss", "optimizer", "step")}
    bound: dict[str, Any] = {name: bind(function) for name, function in functions.items() if function is not None}
    return replace(job, **bound)


@contextmanager
def _on_path(folder: str) -> Iterator[None]:
    """Import modules from a folder first, as `python file.py` does."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _call(subject: str, function: Callable[[], Any], *, fix: str) -> Any:
    """Call the user's code; raise UsageError if it fails or exits."""
    try:
        return function()
    except UsageError:
        raise
    except SystemExit as exit_request:
        # Passed on, its code would look like one of oomph's exit codes: 3 means that nothing fits.
        raise UsageError(
            f"{subject} called sys.exit({quote(exit_request.code)})",
            'remove the call, or put it under `if __name__ == "__main__":`',
        ) from exit_request
    except Exception as error:
        raise UsageError(f"{subject} raised {describe(error)}", fix) from error
