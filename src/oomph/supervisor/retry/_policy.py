"""The decision whether a command that died is started again, and how."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ...failures import FailureKind, Family, Finding
from ...units import count_of
from ._flags import Words, launcher_flag
from ._lightning import Lightning
from ._placeholders import Template
from ._program import FailedRun, NoRestart, Program, Restart
from ._settings import BatchSettings
from ._transformers import Transformers
from ._ultralytics import Ultralytics
from ._yolov5 import Yolov5

_PROGRAMS = (Ultralytics, Yolov5, Transformers, Lightning)

# Failures that a smaller command can survive. Uncertain ones, such as a loader worker that exited, are left out.
_OUT_OF_DEVICE_MEMORY = {
    FailureKind.CUDA_OOM,
    FailureKind.HIP_OOM,
    FailureKind.MPS_OOM,
    FailureKind.XPU_OOM,
    FailureKind.DRIVER_OOM,
    FailureKind.LIBRARY_OOM,
    FailureKind.FRAMEWORK_OOM,
}
_OUT_OF_HOST_MEMORY = {
    FailureKind.CPU_OOM,
    FailureKind.MEMORY_ERROR,
    FailureKind.BAD_ALLOC,
    FailureKind.ENOMEM,
    FailureKind.OOM_KILL,
    FailureKind.HOST_BUDGET,
    FailureKind.HOST_FULL,
    FailureKind.WORKER_KILLED,
    FailureKind.WORKER_BUS_ERROR,
    FailureKind.SHM_FULL,
    FailureKind.COMMIT_LIMIT,
}


@dataclass(frozen=True)
class Decision:
    """What follows a failure: a restart with its settings, or the reason why there is none."""

    restart: Restart | None = None
    settings: BatchSettings | None = None
    change: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class SmallerCommand:
    """The command that needs less memory with the same effective batch; no words if its batch can't be smaller."""

    words: Words = ()


@dataclass(frozen=True)
class RetryPolicy:
    """Decides about retries of one command.

    Attributes:
        words: The command as it was given, with its placeholders.
        template: The placeholders of any program; None without them.
        max_retries: The number of retries; 0 for none.
    """

    words: Words
    template: Template | None = None
    max_retries: int = 0

    @property
    def first_words(self) -> Words:
        """The command of the first start."""
        return self.words if self.template is None else self.template.first(self.words)

    @property
    def program(self) -> Program | None:
        """The program, if its command line is known."""
        if self.template is not None:
            return self.template
        return next((program() for program in _PROGRAMS if program.matches(self.words)), None)

    @property
    def first_settings(self) -> BatchSettings | None:
        """The settings of the first start, if they are known."""
        return None if self.program is None else self.program.read(self.words)

    def why_never(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return why this command can't be started again after any failure; empty if it can."""
        if int(environ.get("WORLD_SIZE", "1") or "1") > 1 and "RANK" in environ:
            return "it is one rank of a run, and the other ranks would wait for it: put `oomph run` before torchrun"
        if launcher_flag(self.words, "--nnodes", "--num-machines") not in {None, "1", "1:1"}:
            return "it runs on several machines, and this one can't start the others again"
        program = self.program
        if program is None:
            return (
                "oomph doesn't know its flags: write {batch}, {accumulate} and {resume} into the command and add "
                "--batch and --resume-args"
            )
        if self.first_settings is None:
            return f"its batch size is not on its command line, as far as oomph knows {program.name}"
        return ""

    def decide(self, finding: Finding | None, run: FailedRun | None, retries: int) -> Decision:
        """Return what follows the death of a command after a number of retries.

        Args:
            finding: Why it died; None if that isn't known.
            run: The command; None if its settings aren't known.
            retries: The number of retries so far.
        """
        if self.max_retries == 0 or finding is None or finding.was_survived:
            return Decision()
        if not is_out_of_memory(finding):
            return Decision(why_not="Not started again: it did not run out of memory.")
        if why := self.why_never():
            return Decision(why_not=f"Not started again: {why}.")
        program = self.program
        assert program is not None  # noqa: S101  why_never has checked both
        assert run is not None  # noqa: S101
        if retries >= self.max_retries:
            return Decision(why_not=f"Not started again: {count_of(retries, 'retry', 'retries')} used up (--retry).")
        settings = run.settings
        is_host = finding.kind in _OUT_OF_HOST_MEMORY
        smaller = (settings.with_fewer_workers() if is_host else None) or settings.with_smaller_batch()
        if smaller is None:
            return Decision(why_not=f"Not started again: the batch of {settings.batch} can't be made smaller.")
        restart = program.restart(run, smaller)
        if isinstance(restart, NoRestart):
            return Decision(why_not=f"Not started again: {restart.reason}.")
        return Decision(restart, smaller, smaller.describe(settings))

    def suggest(self, run: FailedRun | None) -> SmallerCommand | None:
        """Return the command with a smaller batch, for advice; None if no command line alone makes it smaller."""
        program = self.program
        if program is None or self.template is not None or run is None:
            return None
        smaller = run.settings.with_smaller_batch()
        if smaller is None:
            return SmallerCommand()
        restart = program.restart(run, smaller)
        if isinstance(restart, NoRestart):
            return None
        # A checkpoint whose files hold the batch is left out: whoever follows the advice would have to change those.
        words = program.resize(run.words, smaller) if restart.edit else restart.words
        settings = program.read(words)
        return SmallerCommand(words) if settings is not None and settings.batch == smaller.batch else None


def is_out_of_memory(finding: Finding) -> bool:
    """Return True if a failure is certainly that memory ran out."""
    return finding.kind in _OUT_OF_DEVICE_MEMORY | _OUT_OF_HOST_MEMORY


def is_other_error(finding: Finding) -> bool:
    """Return True if a failure is certainly not about memory."""
    return finding.cause.family in {Family.OTHER, Family.NUMERICS}
