"""What is to be trained, as functions, so that nothing is allocated until somebody asks. No torch at import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import MissingFile, UsageError
from .settings import Size

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


@dataclass(frozen=True)
class Job:
    """A training job.

    Attributes:
        model: builds the module.
        batch: `batch(n, size)` makes n samples as any nested structure of tensors; for `loss`, a pair of inputs and
            targets.
        loss: `loss(outputs, targets)`, a scalar.
        optimizer: `optimizer(model)` makes the optimizer with its groups.
        step: instead of `loss`, `step(model, batch)` runs the model and returns the loss.
        selected: the share of elements that data-dependent operations (a boolean mask, `nonzero`, NMS) keep at most;
            a trace can't see the data and takes this. All of them by default, the worst case.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int, Size], Any]
    loss: Callable[[Any, Any], Tensor] | None = None
    optimizer: Callable[[nn.Module], Optimizer] | None = None
    step: Callable[[nn.Module, Any], Tensor] | None = None
    selected: float = 1.0

    def __post_init__(self) -> None:
        for name in ("model", "batch", "optimizer"):
            if not callable(getattr(self, name)):
                raise UsageError(f"the Job's {name} is {getattr(self, name)!r}", "give it a function")
        if (self.loss is None) == (self.step is None):
            raise UsageError("the Job has no loss, or both a loss and a step", "give it exactly one of the two")
        if not 0 < self.selected <= 1:
            raise UsageError(f"the Job's selected is {self.selected!r}", "it is a share between 0 and 1")

    def run(self, model: nn.Module, batch: Any) -> Tensor:
        """Forward and loss of one piece."""
        if self.step is not None:
            return self.step(model, batch)
        assert self.loss is not None  # noqa: S101  checked above
        inputs, targets = batch
        if isinstance(inputs, dict):
            outputs = model(**inputs)
        elif isinstance(inputs, (tuple, list)):
            outputs = model(*inputs)
        else:
            outputs = model(inputs)
        return self.loss(outputs, targets)


def load_job(reference: str) -> Job:
    """The Job that `path/to/file.py:function` returns.

    Raises:
        MissingFile: there is no such file.
        UsageError: the reference has another form, or the file or the function raises, or it returns no Job.
    """
    import runpy  # noqa: PLC0415  only the command line needs it
    from pathlib import Path  # noqa: PLC0415

    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UsageError(f"{reference!r} is no Job", "write path/to/file.py:function, a function that returns a Job")
    path = Path(file)
    if not path.is_file():
        raise MissingFile(f"there is no file {file!r}", "check the path")
    try:
        found = runpy.run_path(str(path)).get(name)
    except Exception as error:
        raise UsageError(f"{file} raised {_words(error)}", "mend the file") from error
    if not callable(found):
        raise UsageError(f"{file} has no function {name!r}", "name a function of that file that returns a Job")
    try:
        job = found()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{reference} raised {_words(error)}", "mend the function") from error
    if not isinstance(job, Job):
        raise UsageError(f"{reference} returned a {type(job).__name__}", "return an oomph.Job")
    return job


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
