"""The result of planning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import document
from ..display import HtmlRepr
from ..prediction import Prediction
from ..settings import Settings

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from ..patches import Patch

_KIND, _VERSION = "plan", 1


@dataclass(frozen=True)
class PlanChange:
    """One change to the requested settings.

    Attributes:
        what: what changes.
        why: the reason.
        cost: what it costs beside time.
        bytes: bytes of memory that it adds, negative if it saves some; None if it wasn't estimated alone.
        seconds: seconds that it adds to a step, negative if it saves some; None if it wasn't estimated alone.
    """

    what: str
    why: str
    cost: str
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Alternative:
    """Other settings than the planned ones.

    Attributes:
        settings: the settings.
        memory: estimated bytes of the device.
        seconds: estimated seconds of a step.
        why_not: why they were not chosen.
    """

    settings: Settings
    memory: int
    seconds: float
    why_not: str


@dataclass(frozen=True)
class DataLoaderPlan:
    """Settings of a torch DataLoader that fit into the host's memory beside the training process.

    Attributes:
        workers: `num_workers`.
        prefetch: `prefetch_factor`; None without workers.
        pin_memory: `pin_memory`.
        memory: bytes that loading needs at most, workers included.
        shared: the part of them that is in `/dev/shm`.
        training: bytes that the training process needs without loading.
        why: the reason for the number of workers.
    """

    workers: int
    prefetch: int | None
    pin_memory: bool
    memory: int
    shared: int
    training: int
    why: str

    @property
    def dataloader_kwargs(self) -> dict[str, int | bool | None]:
        """Keyword arguments for `torch.utils.data.DataLoader`."""
        return {"num_workers": self.workers, "prefetch_factor": self.prefetch, "pin_memory": self.pin_memory}


@dataclass(frozen=True)
class Plan(HtmlRepr):
    """Settings that fit.

    Attributes:
        requested: the requested settings.
        settings: the settings to train with.
        budget: bytes of the device (on the CPU: of the process) that they must fit into.
        requested_need: the prediction for the requested settings.
        planned_need: the prediction for the settings to train with; its seconds are of the whole batch.
        changes: the changes from the requested to the planned settings.
        alternatives: other settings, from little memory to much.
        reserved: bytes of the user's budget that were reserved beforehand for memory that isn't predicted.
        loader: how to load the dataset; None without one.
        notes: what a plan for a script was made for and what it left out, one sentence each.
        steps: how to carry it out in a script; lines of code follow a step's first line.
    """

    requested: Settings
    settings: Settings
    budget: int
    requested_need: Prediction
    planned_need: Prediction
    changes: tuple[PlanChange, ...]
    alternatives: tuple[Alternative, ...] = ()
    reserved: int = 0
    loader: DataLoaderPlan | None = None
    notes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    def apply(self, model: nn.Module, optimizer: Optimizer | Sequence[Optimizer]) -> Patch:
        """Apply the planned settings to a model and its optimizer, in place; `undo()` of the result reverts them.

        Memory format, checkpointing, offloading, mixed precision, the optimizer's implementation and torch's cross
        entropy change; parameters stay the same objects. The batch is split by the training loop, or by
        `oomph.guard(plan=plan)`.

        Raises:
            UsageError: the model or the optimizer can't have a setting.
        """
        from ..patches import apply_settings  # noqa: PLC0415  importing torch takes seconds

        optimizers = optimizer if isinstance(optimizer, Sequence) else (optimizer,)
        return apply_settings(model, optimizers, self.settings)

    def document(self) -> dict[str, Any]:
        """Return the plan as a JSON document."""
        return document.write(_KIND, _VERSION, self)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file."""
        Path(path).write_text(document.dumps(self.document()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from a file.

        Raises:
            MissingFile: there is no such file.
            InvalidFile: it is not a plan of this version of oomph.
        """
        return document.read(_KIND, _VERSION, cls, document.load(Path(path)))
