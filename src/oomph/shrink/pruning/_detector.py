"""`oomph shrink prune`: a detector loses channels and is fine-tuned, in one or several steps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from ...detect import (
    HeadOutputs,
    NoProgress,
    ProgressCallback,
    TrainConfig,
    TrainingData,
    TrainResult,
    Weights,
    Yolov5,
    find_device,
    load_config,
    predict_training,
    read_data,
    read_weights,
    round_to_stride,
    save_weights,
    train,
    yolov5,
)
from ...errors import CannotFit, MissingFile, UsageError
from ...machine import rss_bytes
from ...patches import Widths, read_widths
from ...units import format_size
from .._measure import Bench
from .._training_memory import memory_of_run, predict_memory
from .._variants import ShrinkResult
from ._channels import check_torch_pruning, find_smallest_cut
from ._prune import count_operations
from ._request import PRUNE_FILE, PruneRequest
from ._steps import StepResult, read_step, write_step

_EXAMPLE = (1, 3, 64, 64)  # operations are compared with each other, so that any size will do
_PREFIX = "detector."  # of paths in HeadOutputs


def prune_detector(request: PruneRequest, progress: ProgressCallback) -> ShrinkResult:
    """Prune and fine-tune a detector, or go on with what is in its folder, and measure it beside the original.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector of the data's classes, or it can't be pruned.
        CannotFit: no number of channels trains in the requested memory.
    """
    check_torch_pruning()
    _ = request.target, find_device(request.config.device)  # wrong ones are reported before anything is pruned
    config = replace(request.config, imgsz=round_to_stride(request.config.imgsz))
    assert config.weights is not None  # noqa: S101  checked by the command
    data = read_data(config, NoProgress())  # each step reads and reports it again
    original = _read_detector(config.weights, data)
    weights, result = config.weights, None
    for number in range(1, request.steps + 1):
        step_config = replace(config, run_dir=config.run_dir / f"step{number}")
        step = _PruneStep(request, step_config, data, number / request.steps)
        result = step.run(original, weights, progress)
        weights = Path(result.weights)
    assert result is not None  # noqa: S101  there is at least one step
    progress.log("measuring")
    # Before anything is measured, which leaves memory behind that would count on the CPU.
    target, pruned = request.target, read_weights(weights)
    before = predict_memory(config, original, data.train, target)
    after = predict_memory(config, pruned, data.train, target, result.measured)
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        bench = Bench(config.data, config.imgsz, Path(folder))
        bench.add("before", config.weights, before)
        bench.add("pruned", weights, after)
    return ShrinkResult("prune", config.imgsz, bench.split, tuple(bench.variants))


def prune_network(network: Yolov5, fits: Callable[[Yolov5], bool]) -> Yolov5 | None:
    """Return a detector with as few channels removed as needed, and with their weights; None if no cut is enough.

    Args:
        network: the detector; it isn't changed.
        fits: returns True for a detector that is small enough, and then for all smaller ones.
    """
    model, inputs = HeadOutputs(network), (torch.zeros(_EXAMPLE),)
    kept = [path for path, layer in model.named_modules() if layer in set(network.head.m)]

    def is_enough(pruned: nn.Module) -> bool:
        return fits(_rebuild(network, pruned))

    pruned = find_smallest_cut(model, inputs, kept, is_enough)
    return None if pruned is None else _rebuild(network, pruned)


def _rebuild(network: Yolov5, pruned: nn.Module) -> Yolov5:
    """Build the detector that has the channels and weights of a pruned module."""
    widths = {path.removeprefix(_PREFIX): pair for path, pair in read_widths(pruned).items()}
    state = {name.removeprefix(_PREFIX): value for name, value in pruned.state_dict().items()}
    rebuilt = yolov5(network.size, network.classes, widths=widths)
    rebuilt.load_state_dict(state)
    return rebuilt


@dataclass(frozen=True)
class _PruneStep:
    """A step of a pruning: remove channels, then fine-tune.

    Attributes:
        request: the whole pruning.
        config: the fine-tuning.
        data: the dataset.
        progress: part of the way from the original to the target after this step, from 0 to 1.
    """

    request: PruneRequest
    config: TrainConfig
    data: TrainingData
    progress: float

    def run(self, original: Weights, weights: Path, progress: ProgressCallback) -> StepResult:
        """Run the step, or what is missing of it, and return its result."""
        folder = self.config.run_dir
        if (done := read_step(folder)) is not None:
            progress.log(f"{folder.name} is done: {done.weights}")
            return done
        try:
            trained = train(load_config(folder).resolved, progress, resume=True)
        except MissingFile:  # not begun, or stopped before its first checkpoint
            trained = train(self._prune(original, weights, progress), progress)
        return write_step(folder, _result(trained))

    def _prune(self, original: Weights, weights: Path, progress: ProgressCallback) -> TrainConfig:
        """Write the pruned network, and return the configuration of its fine-tuning."""
        content = read_weights(weights)
        network = content.build()
        pruned = prune_network(network, self._limit(original))
        if pruned is None:
            raise CannotFit(f"no number of channels of {weights} is small enough for {self._describe()}", self._fix())
        path = self.config.run_dir / "pruned.pt"
        save_weights(path, pruned, content.names or self.data.dataset.names)
        before, after = (_operations(model) for model in (original.build(), pruned))
        PRUNE_FILE.save(self.request)
        progress.log(f"pruned to {100 * after / before:.0f} % of the operations: {path}")
        return replace(self.config, weights=path, cfg=pruned.size, widths=pruned.widths)

    def _limit(self, original: Weights) -> Callable[[Yolov5], bool]:
        """Return the function that recognizes a network that is small enough after this step."""
        request = self.request
        if request.ops is not None:
            limit = request.ops**self.progress * _operations(original.build())
            return lambda network: _operations(network) <= limit
        assert request.memory is not None  # noqa: S101  one of the two is set
        before = self._need(original.size, original.widths)
        allowed = before * (request.memory / before) ** self.progress
        return lambda network: self._need(network.size, network.widths) <= allowed

    def _need(self, size: str, widths: Widths | None) -> float:
        config = replace(self.config, cfg=size, widths=widths)
        classes = len(self.data.dataset.names)
        return predict_training(config, classes, self.data.train, self.request.target).device.high

    def _describe(self) -> str:
        request = self.request
        if request.memory is not None:
            return f"training in {format_size(request.memory)} with batch {self.config.batch}"
        return f"{request.ops:g} of the operations"

    def _fix(self) -> str:
        if self.request.memory is None:
            return "use a larger --ops"
        target = self.request.target
        taken = format_size(rss_bytes() if target.is_cpu else target.outside[0])
        return f"use a larger --memory ({taken} are in use before the first step), a smaller batch or image size"


def _read_detector(path: Path, data: TrainingData) -> Weights:
    weights, names = read_weights(path), data.dataset.names
    if weights.classes != len(names):
        raise UsageError(
            f"the weights have {weights.classes} classes and the data has {len(names)}",
            "use the data that the weights were trained on",
        )
    return weights


def _operations(network: Yolov5) -> int:
    return count_operations(HeadOutputs(network), (torch.zeros(_EXAMPLE),))


def _result(trained: TrainResult) -> StepResult:
    name = "last" if trained.saved_epoch is None else "best"
    weights = Path(trained.run_dir) / "weights" / f"{name}.pt"
    return StepResult(str(weights), memory_of_run(trained).measured)
