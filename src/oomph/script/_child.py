"""The process that runs a script: `python -m oomph.script._child FOLDER`.

The folder holds the pickled request; the result and the progress are written into it.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..errors import UsageError, describe, quote
from ..trace import trace_program
from ._accumulation import AccumulatedSteps
from ._capture import Capture, Failure, Model, ScriptRun, TrainingLoop
from ._loaders import TrainingLoaders
from ._replaced_functions import ReplacedFunctions, discard_safetensors

STEPS = 3
_ENOUGH_STEPS = 2  # of a script that fails later: the optimizer's state is there in the second
_PRECISIONS: dict[torch.dtype | None, str] = {torch.bfloat16: "amp-bf16", torch.float16: "amp-fp16"}
_IMAGE_DIMS = 4
_OOMPH = str(Path(__file__).parents[1])
_RANK_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # of torchrun


class ScriptProcess:
    """Runs a script until its training steps are recorded; the process ends there."""

    def __init__(self, run: ScriptRun, folder: Path) -> None:
        self.run, self.folder = run, folder
        self.live = trace_program(run.device, STEPS, self.end, boolean=run.boolean, stacks=run.stacks)
        self.loaders = TrainingLoaders(run.batch, self.live.tracker)
        self.replaced = ReplacedFunctions()
        self.live.before_training = self._apply_settings

    def execute(self) -> NoReturn:
        """Run the script as `python script.py arguments` does, and write the result."""
        sys.argv = [self.run.path, *self.run.arguments]
        sys.path[0] = str(Path(self.run.path).resolve().parent)
        threading.Thread(target=self._report_progress, daemon=True).start()
        register_optimizer_step_pre_hook(lambda *_: discard_safetensors())
        enough_steps = _ENOUGH_STEPS
        with ExitStack() as stack:
            stack.enter_context(self.replaced.prevented())
            stack.enter_context(self.loaders.installed())
            stack.enter_context(self.live.running())
            if self.run.accumulates:
                stack.enter_context(AccumulatedSteps().installed())
            try:
                runpy.run_path(self.run.path, run_name="__main__")
                enough_steps = 1
                failure = Failure(f"ended {self._progress()}", "pass flags after -- that make it train")
            except UsageError as error:
                failure = Failure(f"can't be predicted: {error.why}", error.fix)
            except SystemExit as error:
                code = "" if error.code is None else quote(error.code)
                why = f"called sys.exit({code}) {self._progress()}"
                failure = Failure(why, "check the flags after --", is_explained=True)
            except BaseException as error:  # noqa: BLE001  a script may raise anything
                failure = self._describe(error)
        if self.live.tracker.step >= enough_steps:
            self.end()
        self._write(failure)

    def end(self) -> NoReturn:
        """Write the capture and end the process, before the script can save or report anything."""
        if self.run.batch is not None and self.loaders.samples is None:
            self._write(
                Failure(
                    "gets its batches without a torch DataLoader, so --batch can't replace them",
                    "omit --batch, and pass the script's own flag for it after --",
                )
            )
        trace = self.live.trace()
        assumptions = (*trace.assumptions, *self.replaced.notes)
        trace = dataclasses.replace(trace, assumptions=assumptions)
        self._write(Capture(self._loop(), trace, self.live.first_pass() or trace))

    def _apply_settings(self, model: torch.nn.Module) -> None:
        """Apply the settings to the first model that the script trains."""
        if self.run.settings is not None and not self.live.tracker.trained:
            self.live.apply(model, self.run.settings)

    def _loop(self) -> TrainingLoop:
        tracker, loaders = self.live.tracker, self.loaders
        batches = loaders.batches if loaders.samples else tracker.backward_passes // max(len(tracker.optimizers), 1)
        return TrainingLoop(
            models=tuple(Model(type(model).__name__, _count(model)) for model in tracker.models),
            optimizers=tuple(type(optimizer).__name__ for optimizer in tracker.optimizers),
            samples=loaders.samples or tracker.samples,
            has_loader=loaders.samples is not None,
            micro_batches=max(batches // max(tracker.optimizer_steps, 1), 1),
            precision=_PRECISIONS.get(tracker.autocast_dtype) or _weight_precision(tracker.trained),
            steps=tracker.step,
            trained=len(tracker.trained),
            optimizer="fused" if all(map(_is_fused, tracker.optimizers)) else "given",
            memory_format="channels_last" if any(map(_is_channels_last, tracker.trained)) else "contiguous",
        )

    def _progress(self) -> str:
        """Return how far the script got."""
        tracker = self.live.tracker
        if tracker.optimizer_steps:
            return f"after {tracker.optimizer_steps} of {STEPS} optimizer steps"
        if tracker.backward_passes:
            return f"after {tracker.backward_passes} backward passes, before an optimizer step"
        if tracker.has_optimizer:
            return "after it built an optimizer, before a backward pass"
        return "before it built an optimizer"

    def _report_progress(self) -> None:
        while True:
            (self.folder / "progress").write_text(self._progress())
            time.sleep(1)

    def _describe(self, error: BaseException) -> Failure:
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{Path(error.filename).name}:{error.lineno}"
        else:
            place = _place(error.__traceback__, self.run.path)
        is_guess = self.run.boolean and bool(self.live.recorder.values.guesses)
        return Failure(f"failed at {place} with {describe(error)}", _fix(error), is_guess=is_guess)

    def _write(self, result: Capture | Failure) -> NoReturn:
        temporary = self.folder / "result.tmp"
        temporary.write_bytes(pickle.dumps(result))
        temporary.replace(self.folder / "result")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _weight_precision(models: Sequence[torch.nn.Module]) -> str:
    dtypes = {parameter.dtype for model in models for parameter in model.parameters()}
    return "bf16" if dtypes == {torch.bfloat16} else "fp32"


def _is_fused(optimizer: torch.optim.Optimizer) -> bool:
    return all(group.get("fused") for group in optimizer.param_groups)


def _is_channels_last(model: torch.nn.Module) -> bool:
    images = [parameter for parameter in model.parameters() if parameter.dim() == _IMAGE_DIMS]
    return any(
        weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous() for weight in images
    )


def _place(trace: TracebackType | None, script: str) -> str:
    """Return file and line of the innermost frame in the script's folder, else in any foreign file."""
    folder = str(Path(script).resolve().parent)
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith((_OOMPH, "<frozen"))]
    near = [
        f for f in frames if str(Path(f.filename).resolve()).startswith(folder) and "site-packages" not in f.filename
    ]
    frame = (near or frames or traceback.extract_tb(trace))[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _fix(error: BaseException) -> str:
    """Return what to do about an error of the script."""
    if isinstance(error, ModuleNotFoundError):
        return "install the module into the Python environment of oomph"
    if isinstance(error, FileNotFoundError):
        return "create the file, or pass its path after --; relative paths start at the current folder"
    if isinstance(error, EOFError):
        return "pass flags after -- with which it asks nothing"
    if isinstance(error, KeyError) and error.args and error.args[0] in _RANK_VARIABLES:
        return "set the variables of torchrun for one rank: RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 before the command"
    return "run the script itself to see whether it fails there too"


def main() -> NoReturn:
    """Run the script of the folder that the command line names."""
    folder = Path(sys.argv[1])
    run: ScriptRun = pickle.loads((folder / "request").read_bytes())  # noqa: S301  written by the parent process
    ScriptProcess(run, folder).execute()


if __name__ == "__main__":
    main()
