"""One rank of several runs: `torchrun -m tests.detect.training.rank DATA FOLDER`; each writes its weights to FOLDER."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from oomph.data import Batch
from oomph.detect import TrainConfig, TrainResult, train
from oomph.detect.training import _train
from oomph.detect.training._parts import TrainingParts, build_parts
from oomph.detect.training._trainer import Trainer
from oomph.detect.training.planning import plan_training
from oomph.distributed import DistContext, init_distributed
from oomph.planner import Plan
from oomph.recovery import StepReport
from tests.recovery.faults import FaultIn

from .runs import HYP, RecordingProgress, small_config

# Two iterations make an update; the second update crosses the end of an epoch.
RANK_HYP = replace(HYP, lr0=0.01, warmup_epochs=0.0, nominal_batch=16)
FAILING_RANK = 1
FAILING_ITERATION = 2  # the first of an update's two iterations, and the last of an epoch


class OneFault(FaultIn):
    """Lets a single operation of that name run out of memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.raised:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


class DisturbedTrainer(Trainer):
    """Raises an out-of-memory error or a signal on one rank, and writes what was learned."""

    name, event = "", ""

    def _train_step(self, batch: Batch, epoch: int) -> StepReport:
        if self._iteration != FAILING_ITERATION or self._dist.rank != FAILING_RANK:
            return super()._train_step(batch, epoch)
        if self.event == "stop":
            os.kill(os.getpid(), signal.SIGTERM)
        with OneFault("convolution_backward") if self.event == "oom" else contextlib.nullcontext():
            return super()._train_step(batch, epoch)

    def run(self) -> TrainResult:
        try:
            return super().run()
        finally:
            model = self._parts.model.state_dict()
            model = {name.removeprefix("module."): value for name, value in model.items()}
            content = {
                "iterations": self._guard.steps,
                "retries": self._retries,
                "rows": self._rows,
                "model": model,
                "ema": self._parts.ema.module.state_dict(),
            }
            torch.save(content, self._config.run_dir.parent / f"{self.name}-{self._dist.rank}.pt")


def build_parts_without_statistics(*args: Any) -> TrainingParts:
    """Put BatchNorm into eval mode, so that the ranks' parts of a batch add up."""
    parts = build_parts(*args)
    for module in parts.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return parts


def plan_once(plans: list[Plan], config: TrainConfig, *rest: Any) -> Plan:
    """Reuse the first plan: planning takes longer than the runs."""
    if not plans:
        plans.append(plan_training(config, *rest))
    return replace(plans[0], settings=replace(plans[0].settings, batch=config.batch))


def run(name: str, config: TrainConfig, dist: DistContext, event: str = "", *, resume: bool = False) -> None:
    DisturbedTrainer.name, DisturbedTrainer.event = name, event
    train(config, RecordingProgress(), dist=dist, resume=resume)


def main(data: Path, folder: Path) -> None:
    vars(_train).update(
        Trainer=DisturbedTrainer,
        build_parts=build_parts_without_statistics,
        plan_training=functools.partial(plan_once, []),
    )
    configs = {name: small_config(data, folder / name, hyp=RANK_HYP) for name in ("plain", "oom", "stop", "single")}
    with init_distributed("cpu") as dist:
        run("plain", configs["plain"], dist)
        run("oom", configs["oom"], dist, "oom")
        try:
            run("stop", configs["stop"], dist, "stop")
        except SystemExit as end:
            assert end.code == 128 + signal.SIGTERM
        run("resumed", configs["stop"], dist, resume=True)
    if dist.is_main:
        torch.set_num_threads(1)
        run("single", configs["single"], DistContext())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
