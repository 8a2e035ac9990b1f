"""Scripts with the arguments of Hugging Face's Trainer.

Until 2026, transformers resumed with the batch in the checkpoint's trainer_state.json, which is that of all GPUs of a
process, and not with that of the arguments. So it is changed there, too, but only in checkpoints of this run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ._checkpoints import newest
from ._file_edit import FileEdit
from ._flags import Flag, Words, has_flag
from ._program import BatchFlags, FailedRun, NoRestart, Restart, read_script
from ._settings import BatchSettings

_BATCH = ("--per_device_train_batch_size", "--per-device-train-batch-size")
_FLAGS = BatchFlags(
    batch=Flag(_BATCH),
    batch_default=8,
    accumulate=Flag(("--gradient_accumulation_steps", "--gradient-accumulation-steps")),
    workers=Flag(("--dataloader_num_workers", "--dataloader-num-workers")),
    workers_default=0,
)
_OUTPUT = Flag(("--output_dir", "--output-dir"))
_RESUME = Flag(("--resume_from_checkpoint", "--resume-from-checkpoint"))
_STATE = "trainer_state.json"  # written last
# As the examples of transformers print it.
_DETECTED = re.compile(r"Checkpoint detected, resuming training at (\S+)\. ")


class Transformers:
    """A script that parses TrainingArguments."""

    name = "a script of Hugging Face's Trainer"

    @staticmethod
    def matches(words: Words) -> bool:
        """Return True if the batch flag of TrainingArguments is given, or if the script's text parses them.

        `--output_dir` and `--num_train_epochs` are also flags of other scripts, such as those of diffusers.
        """
        if has_flag(words, *_BATCH):
            return True
        text = read_script(words)
        return has_flag(words, *_OUTPUT.names) and "HfArgumentParser" in text and "TrainingArguments" in text

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings."""
        return _FLAGS.read(words)

    def resize(self, words: Words, settings: BatchSettings) -> Words:
        """Return the command line with another batch, and the same effective batch."""
        return _FLAGS.write(words, settings)

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart | NoRestart:
        """Resume the newest complete checkpoint in the output folder, with the same effective batch."""
        smaller = _FLAGS.write(run.words, settings)
        folder = _OUTPUT.read(run.words)
        found = newest(Path(folder), "checkpoint-*", run.start, _is_complete) if folder else None
        checkpoint = found or (Path(run.checkpoint) if run.checkpoint else None)
        if checkpoint is not None:
            edit = _batch_edit(checkpoint / _STATE, run.settings.batch, settings.batch)
            if isinstance(edit, NoRestart):
                return edit
            return Restart(_RESUME.write(smaller, checkpoint), str(checkpoint), edit)
        given = _RESUME.read(run.words) or ""
        resumed = given or next(iter(_DETECTED.findall(run.output)), "")
        if resumed and settings.batch != run.settings.batch and _read_state(Path(resumed) / _STATE):
            return NoRestart(
                f"it resumes {resumed} of another run, whose {_STATE} has the batch that transformers 4 uses, and only "
                "checkpoints that this run has written are changed"
            )
        return Restart(smaller, given)


def _is_complete(checkpoint: Path) -> bool:
    return (checkpoint / _STATE).is_file()


def _read_state(path: Path) -> dict[str, object]:
    """Return what a checkpoint has saved about its run; nothing if it has no batch."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return state if isinstance(state["train_batch_size"], int) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _batch_edit(path: Path, before: int, after: int) -> FileEdit | NoRestart | None:
    """Return the edit that gives a checkpoint another batch; None if it has none, or the same."""
    state = _read_state(path)
    saved = state.get("train_batch_size")
    if before == after or not isinstance(saved, int):
        return None
    if saved % before:  # that of a checkpoint which the run has resumed
        return NoRestart(f"{path} has a train_batch_size of {saved}, and the command one of {before}")
    text = json.dumps({**state, "train_batch_size": saved // before * after}, indent=2, sort_keys=True) + "\n"
    return FileEdit(path, text, "train_batch_size", "transformers 4")
