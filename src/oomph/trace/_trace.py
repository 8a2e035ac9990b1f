"""The trace: storages, the order of their allocations and frees, and the phases of training. No torch."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class StorageKind(enum.Enum):
    """The purpose of a storage."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    GRADIENT = "gradient"
    STATE = "optimizer state"
    INPUT = "input"
    ACTIVATION = "saved activation"
    TEMPORARY = "temporary"
    WORKSPACE = "workspace"


class Phase(enum.Enum):
    """A phase of training."""

    BUILD = "build"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    VALIDATION = "validation"
    AVERAGE = "moving average"
    CHECKPOINT = "checkpoint"


TO_HOST, TO_DEVICE = "copy_to_host", "copy_to_device"  # operations that offload activations

RECURRENT_ESTIMATE = "the cuDNN workspace of this kind of recurrent layer is an estimate, so the ranges are wider"

COMPILED = "code of torch.compile is predicted as it runs without compilation, so the ranges are wider"


class CodeLine(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Storage:
    """One allocation.

    Attributes:
        size: requested bytes.
        kind: its purpose.
        op: the operation that allocated it.
        module: path of the module that the operation ran in; empty outside the model.
        phase: the phase it was allocated in.
        step: the training step it was allocated in, starting at 0.
        optional: True for a workspace that cuDNN can do without, by choosing another algorithm.
        stack: the lines of the user's code that allocated it, innermost first; in backward, those of the operation that
            is differentiated. Empty unless the trace was made with stacks.
        stream: the stream that it was allocated on; training runs on stream 0.
    """

    size: int
    kind: StorageKind
    op: str
    module: str
    phase: Phase
    step: int
    optional: bool = False
    stack: tuple[CodeLine, ...] = ()
    stream: int = 0


@dataclass(frozen=True)
class OpCost:
    """Computation and memory traffic of one operation, for estimating its time.

    Attributes:
        op: the operation.
        dtype: the compute type: "float32", "float16", "bfloat16".
        flops: floating-point operations.
        traffic: bytes read and written.
        module: path of the module that it ran in, or that it differentiates; empty outside the model.
        phase: the phase of training.
    """

    op: str
    dtype: str
    flops: int
    traffic: int
    module: str
    phase: Phase


@dataclass(frozen=True)
class ModuleCall:
    """A module's forward pass in the last training step.

    Attributes:
        path: the module.
        inputs: indices of the storages that it was called with, in `Trace.storages`.
        outputs: indices of the storages that it returned.
        writes_inputs: True if it changed its inputs in place, so that it can't run again.
    """

    path: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes_inputs: bool


@dataclass(frozen=True)
class Guess:
    """An assumption about data at a line of the user's code.

    Attributes:
        line: the line, as `file.py:12` and its source; empty if it is unknown.
        text: the assumption, as part of a sentence.
        is_branch: True if a value was read that may decide a branch or a size, so that another one may need other
            memory.
    """

    line: str
    text: str
    is_branch: bool = False

    def __str__(self) -> str:
        return f"{self.text}, at {self.line}" if self.line else self.text


@dataclass(frozen=True)
class Trace:
    """Recording of several training steps.

    Attributes:
        storages: all allocations.
        events: allocations and frees in order. i + 1 allocates storage i, -(i + 1) frees it.
        phase_starts: (index into events, step, phase) at the start of each phase.
        training_events: number of leading events that belong to training steps; validation and the moving average
            follow.
        op_costs: the operations of the last training step.
        assumptions: what the trace assumed, one sentence each, guesses included.
        guesses: the assumptions about values that depend on data.
        module_classes: (path, class) of the model's modules.
        calls: the forward passes of modules in the last training step, in the order in which they ended.
        classes: number of classes of the cross entropy, the largest one; 0 if there is none.
        pinned: bytes of pinned host memory that hold offloaded activations.
        op_starts: for each of `op_costs`, the number of events before the operation.
    """

    storages: tuple[Storage, ...]
    events: tuple[int, ...]
    phase_starts: tuple[tuple[int, int, Phase], ...]
    training_events: int
    op_costs: tuple[OpCost, ...]
    assumptions: tuple[str, ...]
    guesses: tuple[Guess, ...] = ()
    module_classes: tuple[tuple[str, str], ...] = ()
    calls: tuple[ModuleCall, ...] = ()
    classes: int = 0
    pinned: int = 0
    op_starts: tuple[int, ...] = ()
