"""The request of a pruning, saved in its folder, so that it can be resumed without repeating the flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ... import document
from ...detect import TrainConfig
from ...errors import InvalidFile, UsageError
from ...files import write_atomically
from ...machine import Target, find_target, this_target

REQUEST_FILE = "prune.json"
_KIND, _VERSION = "pruning", 1


@dataclass(frozen=True)
class PruneRequest:
    """Request of a pruning.

    Attributes:
        config: the fine-tuning of each step; its weights are the detector to prune, its folder holds the steps.
        gpu: GPU or cloud machine that training memory is predicted for, or "cpu"; this machine's if None.
        ops: fraction of the operations that may remain.
        memory: instead of `ops`: bytes of the target's memory in which the pruned detector must train.
        steps: number of steps, each followed by fine-tuning.
    """

    config: TrainConfig
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
            raise UsageError("pruning needs one target", "set either a fraction of operations or a memory size")
        if self.ops is not None and not 0 < self.ops < 1:
            raise UsageError(f"the fraction of operations is {self.ops}", "use a number between 0 and 1, such as 0.5")
        if self.steps < 1:
            raise UsageError(f"the number of steps is {self.steps}", "use at least 1")


def save_request(request: PruneRequest) -> None:
    """Write the request into its folder, with absolute paths."""
    config = request.config
    assert config.weights is not None  # noqa: S101  checked by the command
    weights, data, run_dir = (path.absolute() for path in (config.weights, config.data, config.run_dir))
    saved = replace(request, config=replace(config, weights=weights, data=data, run_dir=run_dir))
    text = document.dumps(document.write(_KIND, _VERSION, saved))
    write_atomically(run_dir / REQUEST_FILE, lambda file: file.write(text.encode()))


def load_prune_request(folder: Path) -> PruneRequest:
    """Return the request of a pruning; its folder may have been moved.

    Raises:
        InvalidFile: the file is damaged.
    """
    path = folder / REQUEST_FILE
    try:
        request = document.read(_KIND, _VERSION, PruneRequest, document.load(path))
    except InvalidFile as error:
        raise InvalidFile(f"{path} can't be used: {error.why}", "start a new run") from None
    return replace(request, config=replace(request.config, run_dir=folder))
