"""Scripts with the arguments of Hugging Face's Trainer."""

from __future__ import annotations

from pathlib import Path

from ._checkpoints import newest
from ._flags import Flag, Words, has_flag
from ._program import BatchFlags, Restart
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

    def restart(self, words: Words, settings: BatchSettings, since: float) -> Restart:
        """Resume the newest complete checkpoint in the output folder, with the same effective batch."""
        smaller = _FLAGS.write(words, settings)
        folder = _OUTPUT.read(words)
        checkpoint = newest(Path(folder), ("checkpoint-*",), since, _is_complete) if folder else None
        if checkpoint is None:
            return Restart(smaller)
        return Restart(_RESUME.write(smaller, checkpoint), str(checkpoint))


def _is_complete(checkpoint: Path) -> bool:
    return (checkpoint / "trainer_state.json").is_file()  # written last
