"""Programs with Lightning's CLI: `python main.py fit --trainer.max_epochs 10 --data.batch_size 64`."""

from __future__ import annotations

from pathlib import Path

from ._checkpoints import newest_of_run
from ._flags import Flag, Words, arguments_start
from ._program import BatchFlags, FailedRun, Restart
from ._settings import BatchSettings

_FLAGS = BatchFlags(
    batch=Flag(("--data.batch_size", "--data.init_args.batch_size", "--model.batch_size")),
    batch_default=None,
    accumulate=Flag(("--trainer.accumulate_grad_batches",)),
    workers=Flag(("--data.num_workers", "--data.init_args.num_workers")),
    workers_default=None,
)
_ROOT, _CHECKPOINT = Flag(("--trainer.default_root_dir",)), Flag(("--ckpt_path",))


class Lightning:
    """A program with Lightning's CLI."""

    name = "Lightning's CLI"

    @staticmethod
    def matches(words: Words) -> bool:
        """Return True for `fit` with flags of the trainer, the data or the model."""
        arguments = words[arguments_start(words) :]
        sections = ("--trainer.", "--data.", "--model.", "--config")
        return "fit" in arguments and any(word.startswith(sections) for word in arguments)

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings; None if the batch size is in a file, or is the data module's own default."""
        return _FLAGS.read(words)

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart:
        """Resume the newest checkpoint of this run below the root folder, with the same effective batch."""
        root = Path(_ROOT.read(run.words) or ".")
        checkpoint, why_not = newest_of_run(run, [root], "**/checkpoints/*.ckpt")
        smaller = _FLAGS.write(run.words, settings)
        if checkpoint is None:
            return Restart(smaller, _CHECKPOINT.read(run.words) or "", why_not)
        return Restart(_CHECKPOINT.write(smaller, checkpoint), str(checkpoint), why_not)
