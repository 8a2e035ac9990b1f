"""The request of a pruning."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError
from ...machine import Target, find_target, this_target
from .._request_file import RequestFile, TrainingRequest


@dataclass(frozen=True)
class PruneRequest(TrainingRequest):
    """Request of a pruning.

    Attributes:
        config: the fine-tuning of each step; its weights are the detector to prune, its folder holds the steps.
        gpu: GPU or cloud machine that training memory is predicted for, or "cpu"; this machine's if None.
        ops: fraction of the operations that may remain.
        memory: instead of `ops`: bytes of the target's memory in which the pruned detector must train.
        steps: number of steps, each followed by fine-tuning.
    """

    gpu: str | None = None
    ops: float | None = 0.5
    memory: int | None = None
    steps: int = 1

    @property
    def target(self) -> Target:
        """Where training memory is predicted."""
        return this_target() if self.gpu is None else find_target(self.gpu)

    def __post_init__(self) -> None:
        if (self.ops is None) == (self.memory is None):
            raise UsageError("pruning needs one target", "set either --ops or --memory")
        if self.ops is not None and not 0 < self.ops < 1:
            raise UsageError(f"the fraction of operations is {self.ops}", "use a number between 0 and 1, such as 0.5")
        if self.steps < 1:
            raise UsageError(f"the number of steps is {self.steps}", "use at least 1")


PRUNE_FILE = RequestFile("prune.json", "pruning", PruneRequest)
