"""What is asked of a training script, and what is learned from it. No torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..settings import Settings
from ..trace import EmulatedDevice, Trace


@dataclass(frozen=True)
class ScriptRun:
    """A script to run for a prediction.

    Attributes:
        path: the script.
        arguments: its command line.
        batch: samples per batch of its training DataLoader; the script's own if None.
        device: the device to trace for.
        boolean: the value of a boolean that the script reads from the device.
        settings: settings to apply to the model and the optimizers before training starts; None for the script's own.
        accumulates: True if optimizers update only at every second step, with the gradients of two batches.
        stacks: keep the lines of the script that made each allocation.
    """

    path: str
    arguments: tuple[str, ...]
    batch: int | None
    device: EmulatedDevice
    boolean: bool = True
    settings: Settings | None = None
    accumulates: bool = False
    stacks: bool = False


@dataclass(frozen=True)
class Model:
    """A model that a script calls: its class and its number of parameters."""

    name: str
    parameters: int


@dataclass(frozen=True)
class TrainingLoop:
    """A script's training loop.

    Attributes:
        models: the models that it calls.
        optimizers: the classes of the optimizers that took a step.
        samples: samples per batch; None if unknown.
        has_loader: True if the batches came from a torch DataLoader.
        micro_batches: batches per optimizer step.
        precision: the precision of the script, as in Settings.
        steps: recorded steps of every optimizer.
        trained: number of the models that it trains.
        optimizer: the implementation of its updates, as in Settings.
        memory_format: the layout of its weights, as in Settings.
    """

    models: tuple[Model, ...]
    optimizers: tuple[str, ...]
    samples: int | None
    has_loader: bool
    micro_batches: int
    precision: str
    steps: int
    trained: int = 1
    optimizer: str = "given"
    memory_format: str = "contiguous"

    @property
    def settings(self) -> Settings:
        """The loop's settings; a batch of unknown size counts as one sample."""
        samples = self.samples or 1
        return Settings(
            batch=samples * self.micro_batches,
            micro_batch=samples,
            precision=self.precision,
            optimizer=self.optimizer,
            memory_format=self.memory_format,
        )

    def describe(self) -> str:
        """Return what was captured, in one line."""
        parts = [f"model {model.name} ({_millions(model.parameters)} parameters)" for model in self.models]
        parts += [f"{count} {name}" if count > 1 else name for name, count in Counter(self.optimizers).items()]
        if self.samples is not None:
            source = "the DataLoader" if self.has_loader else "the script's own code"
            parts.append(f"batches of {self.samples} from {source}")
        if self.micro_batches > 1:
            parts.append(f"{self.micro_batches} micro-batches per step")
        if self.precision != "fp32":
            parts.append(self.precision)
        return ", ".join(parts)


@dataclass(frozen=True)
class Capture:
    """A script's training loop.

    Attributes:
        loop: the loop.
        trace: the trace of its first steps.
        first_pass: the trace up to the first update, or of the first of several passes that the update waited for.
    """

    loop: TrainingLoop
    trace: Trace
    first_pass: Trace


@dataclass(frozen=True)
class Failure:
    """Why a script gave no training step.

    Attributes:
        why: what happened, without the script's name.
        fix: what to do next.
        is_guess: True if values were assumed before it, so that others may succeed.
        is_explained: True if the script's last line says why.
    """

    why: str
    fix: str
    is_guess: bool = False
    is_explained: bool = False


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"  # noqa: PLR2004  below, 0.0 M
