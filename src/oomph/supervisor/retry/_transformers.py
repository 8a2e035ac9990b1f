"""Scripts with the arguments of Hugging Face's Trainer."""

from __future__ import annotations

import json
from pathlib import Path

from ._checkpoints import newest
from ._flags import Flag, Words, has_flag
from ._program import BatchFlags, FailedRun, Restart
from ._saved_options import write_options
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


class Transformers:
    """A script that parses TrainingArguments."""

    name = "a script of Hugging Face's Trainer"

    @staticmethod
    def matches(words: Words) -> bool:
        """Return True if the flags are those of TrainingArguments."""
        return has_flag(words, *_BATCH) or (
            has_flag(words, *_OUTPUT.names) and has_flag(words, "--model_name_or_path", "--num_train_epochs")
        )

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings."""
        return _FLAGS.read(words)

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart:
        """Resume the newest complete checkpoint in the output folder, with the same effective batch."""
        smaller = _FLAGS.write(run.words, settings)
        folder = _OUTPUT.read(run.words)
        found = newest(Path(folder), "checkpoint-*", run.start, _is_complete) if folder else None
        checkpoint = found or (Path(run.checkpoint) if run.checkpoint else None)
        if checkpoint is None:
            return Restart(smaller, _RESUME.read(run.words) or "")
        note = _write_batch(checkpoint / _STATE, run.settings.batch, settings.batch)
        return Restart(_RESUME.write(smaller, checkpoint), str(checkpoint), note)


def _is_complete(checkpoint: Path) -> bool:
    return (checkpoint / _STATE).is_file()


def _write_batch(path: Path, before: int, after: int) -> str:
    """Write the batch into a checkpoint; return what was changed, as a sentence.

    Until 2026, transformers resumed with the batch of the checkpoint, which is that of all GPUs of a process, and not
    with that of the arguments.
    """
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        saved = state["train_batch_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if before == after or not isinstance(saved, int) or saved % before:
        return ""
    state["train_batch_size"] = saved // before * after
    text = json.dumps(state, indent=2, sort_keys=True) + "\n"
    return write_options(path, text, "train_batch_size", "transformers 4")
