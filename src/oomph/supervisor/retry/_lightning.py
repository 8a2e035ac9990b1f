"""Programs with Lightning's CLI: `python main.py fit --trainer.max_epochs 10 --data.batch_size 64`."""

from __future__ import annotations

import re
from pathlib import Path

from ._checkpoints import is_whole, last_named, written
from ._flags import Flag, Words, arguments_start
from ._lightning_progress import is_within_epoch
from ._program import BatchFlags, FailedRun, NoRestart, Restart
from ._settings import BatchSettings

_FLAGS = BatchFlags(
    batch=Flag(("--data.batch_size", "--data.init_args.batch_size", "--model.batch_size")),
    batch_default=None,
    accumulate=Flag(("--trainer.accumulate_grad_batches",)),
    workers=Flag(("--data.num_workers", "--data.init_args.num_workers")),
    workers_default=None,
)
_ROOT, _CHECKPOINT = Flag(("--trainer.default_root_dir",)), Flag(("--ckpt_path",))
_SEED = Flag(("--seed_everything",))
_SAVED = re.compile(r"saving model to '([^'\r\n]+)'")  # as ModelCheckpoint(verbose=True) prints it


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

    def resize(self, words: Words, settings: BatchSettings) -> Words:
        """Return the command line with another batch, and the same effective batch."""
        return _FLAGS.write(words, settings)

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart | NoRestart:
        """Resume the newest checkpoint of this run that fits the settings, with the same effective batch.

        A checkpoint within an epoch holds a number of batches. In smaller ones that is a smaller part of the epoch, so
        samples would be repeated and updates added.
        """
        smaller = self.resize(run.words, settings)

        def fits(path: Path) -> bool:
            return settings.batch == run.settings.batch or not is_within_epoch(path)

        folder, note = _checkpoint_folder(run)
        checkpoints = [] if folder is None else written([folder], "*.ckpt", run.start, is_whole)
        if run.checkpoint and is_whole(Path(run.checkpoint)):
            checkpoints.append(Path(run.checkpoint))
        fitting = next(filter(fits, checkpoints), None)
        if fitting is not None:
            return Restart(_CHECKPOINT.write(smaller, fitting), str(fitting), note=note)
        if checkpoints:
            note = "Its checkpoints were saved within an epoch, where a smaller batch would add updates: none is taken."
        given = _CHECKPOINT.read(run.words) or ""
        if given and settings.batch != run.settings.batch and is_within_epoch(Path(given)):
            return NoRestart(f"it resumes {given}, saved within an epoch, where a smaller batch would add updates")
        return Restart(smaller, given, note=note)


def _checkpoint_folder(run: FailedRun) -> tuple[Path | None, str]:
    """Return the folder of the run's checkpoints, or a sentence why it isn't known.

    Its output may name it. Otherwise it is beside the config.yaml that Lightning's CLI writes when a run begins, if
    only one with the run's settings was written since.
    """
    named = last_named(run, _SAVED)
    if named is not None:
        return named.parent, ""
    root = Path(_ROOT.read(run.words) or ".")
    configs = written([root], "**/config.yaml", run.start, lambda path: _has_settings(path, run))
    if len(configs) == 1:
        return configs[0].parent / "checkpoints", ""
    if not written([root], "**/checkpoints/*.ckpt", run.start, is_whole):
        return None, ""
    return None, f"It isn't known which of the new checkpoints below {root.resolve()} are its own: none is taken."


def _has_settings(config: Path, run: FailedRun) -> bool:
    """Return True if a config.yaml of Lightning's CLI has the settings of a run."""
    try:
        lines = {line.strip() for line in config.read_text(encoding="utf-8").splitlines()}
    except (OSError, UnicodeDecodeError):
        return False
    expected = {f"batch_size: {run.settings.batch}", f"accumulate_grad_batches: {run.settings.accumulate}"}
    seed = _SEED.read(run.words)
    return expected | (set() if seed is None else {f"seed_everything: {seed}"}) <= lines
