"""One rank of several runs: `torchrun -m tests.detect.rank DATA FOLDER`; each leaves its weights in FOLDER."""

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
from oomph.detect import EmbeddedRun, OrderForm, Outcome, Ranks, join_ranks, train
from oomph.detect.training import _train as _training
from oomph.detect.training._planning import plan_run
from oomph.detect.training._trainer import Course
from oomph.planner import Plan
from oomph.recovery import StepReport
from tests.recovery.faults import FaultIn

from .test_course import Quiet

# Groups of two iterations that make a step, the second of which goes over the end of an epoch.
RECIPE = replace(EmbeddedRun().recipe, rate=0.01, warmup_epochs=0.0, nominal_batch=16)
UNLUCKY = 1  # the rank that things happen to
MIDDLE = 2  # the iteration that they happen in: the first of a step's two, and the last of an epoch


class Once(FaultIn):
    """One operation of that name runs out of memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.raised:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


class Watched(Course):
    """A run without statistics, so that shares of a batch add up; something happens in the middle."""

    name, happens = "", ""

    def build(self, *given: Any) -> None:
        super().build(*given)
        for module in self.guard.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()

    def _step(self, batch: Batch, epoch: int) -> StepReport:
        if self.iteration != MIDDLE or self.ranks.rank != UNLUCKY:
            return super()._step(batch, epoch)
        if self.happens == "stop":
            os.kill(os.getpid(), signal.SIGTERM)
        with Once("convolution_backward") if self.happens == "fault" else contextlib.nullcontext():
            return super()._step(batch, epoch)

    def run(self) -> Outcome:
        try:
            return super().run()
        finally:
            facts = {"iterations": self.guard.steps, "retries": self.retries, "rows": self.rows}
            state = {"model": self.guard.model.state_dict(), "average": self.average.module.state_dict()}
            place = self.form.folder.parent / f"{self.name}-{self.ranks.rank}.pt"
            torch.save({**facts, **state}, place)


def planned_once(known: list[Plan], form: OrderForm, *rest: Any) -> Plan:
    """Planning takes longer than the runs: what fits in shares fits in whole batches as small as these."""
    if not known:
        known.append(plan_run(form, *rest))
    return replace(known[0], settings=replace(known[0].settings, batch=form.batch))


def run(name: str, form: OrderForm, ranks: Ranks, happens: str = "", *, resume: bool = False) -> None:
    Watched.name, Watched.happens = name, happens
    train(form, Quiet(), ranks=ranks, resume=resume)


def main(data: Path, folder: Path) -> None:
    vars(_training).update(Course=Watched, plan_run=functools.partial(planned_once, []))
    usual = OrderForm(
        data=data, folder=folder, network="n", size=64, batch=8, epochs=2, device="cpu", threads=1, recipe=RECIPE
    )
    forms = {name: replace(usual, folder=folder / name) for name in ("plain", "fault", "stop", "alone")}
    with join_ranks("cpu") as ranks:
        run("plain", forms["plain"], ranks)
        run("fault", forms["fault"], ranks, "fault")
        try:
            run("stop", forms["stop"], ranks, "stop")
        except SystemExit as end:
            assert end.code == 128 + signal.SIGTERM
        run("resumed", forms["stop"], ranks, resume=True)
    if ranks.is_first:
        torch.set_num_threads(1)
        run("alone", forms["alone"], Ranks())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
