"""What a trace is made of: storages, the order of their births and deaths, and the phases they fall into. No torch."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StorageKind(enum.Enum):
    """What a piece of memory is for."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    GRADIENT = "gradient"
    STATE = "optimizer state"
    INPUT = "input"
    ACTIVATION = "saved activation"
    TEMPORARY = "temporary"
    WORKSPACE = "workspace"


class Phase(enum.Enum):
    """The part of training that was running."""

    BUILD = "build"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    VALIDATION = "validation"
    AVERAGE = "moving average"
    CHECKPOINT = "checkpoint"


RECURRENT = "the workspace of such recurrent layers is an estimate: the ranges are wider"


@dataclass(frozen=True)
class Storage:
    """One piece of memory.

    Attributes:
        size: bytes, as they were asked for.
        kind: what it is for.
        op: the operation that made it.
        module: path of the module it was made in; empty outside of the model.
        phase: the phase it was made in.
        step: which training step, 0 being the first.
        optional: a workspace that the library does without when there is no room for it.
    """

    size: int
    kind: StorageKind
    op: str
    module: str
    phase: Phase
    step: int
    optional: bool = False


@dataclass(frozen=True)
class OpCost:
    """What the traced step computes, for an estimate of its time: one entry a kernel-sized operation.

    Attributes:
        op: the operation.
        dtype: what it computes in: "float32", "float16", "bfloat16".
        flops: floating-point operations.
        traffic: bytes read and written.
    """

    op: str
    dtype: str
    flops: int
    traffic: int


@dataclass(frozen=True)
class Trace:
    """A traced run of several training steps.

    Attributes:
        storages: every piece of memory.
        events: births as i + 1 and deaths as -(i + 1), i being the index of a storage, in order.
        marks: where each phase of each step begins: (index into events, step, phase).
        trained: how many of the events belong to the training steps; validation and the like come after them.
        work: the operations of the last step.
        assumptions: what the trace took for granted, in words.
    """

    storages: tuple[Storage, ...]
    events: tuple[int, ...]
    marks: tuple[tuple[int, int, Phase], ...]
    trained: int
    work: tuple[OpCost, ...]
    assumptions: tuple[str, ...]
