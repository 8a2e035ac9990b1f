"""The `yolo` command of Ultralytics. It accumulates to a nominal batch of 64 images by itself."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ._checkpoints import YOLO_FOLDER, newest_of_run
from ._flags import Flag, Words, script
from ._program import BatchFlags, FailedRun, Restart
from ._settings import BatchSettings

_NOMINAL = 64
_FLAGS = BatchFlags(
    batch=Flag(("batch",)),
    batch_default=16,
    accumulate=None,
    workers=Flag(("workers",)),
    workers_default=8,
)
_MODEL, _RESUME, _PROJECT, _NBS = Flag(("model",)), Flag(("resume",)), Flag(("project",)), Flag(("nbs",))


class Ultralytics:
    """`yolo train`, `yolo detect train` and `yolo mode=train`."""

    name = "`yolo train`"

    @staticmethod
    def matches(words: Words) -> bool:
        """Return True for training by the yolo command."""
        is_yolo = "yolo" in {Path(word).name for word in words[:2]} or script(words) == "ultralytics"
        return is_yolo and bool({"train", "mode=train"} & set(words))

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings; None if the batch is automatic (batch=-1, batch=0.7)."""
        settings = _FLAGS.read(words)
        if settings is None:
            return None
        settings = replace(settings, nominal=_NBS.read_number(words, _NOMINAL))
        if not _resumes(words) or _FLAGS.batch.read(words) is not None:
            return settings
        batch = _saved_batch(Path(_MODEL.read(words) or ""))
        return None if batch is None else replace(settings, batch=batch)

    def resize(self, words: Words, settings: BatchSettings) -> Words:
        """Return the command line with another batch."""
        return _FLAGS.write(words, settings)

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart:
        """Resume the last.pt of this run; the batch of the command line counts there."""
        folder = Path(_PROJECT.read(run.words) or "runs")
        checkpoint, why_not = newest_of_run(run, [folder], "**/weights/last.pt", YOLO_FOLDER)
        smaller = _FLAGS.write(run.words, settings)
        if checkpoint is None:
            resumed = (_MODEL.read(run.words) or "") if _resumes(run.words) else ""
            return Restart(smaller, resumed, note=why_not)
        plain = tuple(word for word in smaller if word != "resume")
        return Restart(_RESUME.write(_MODEL.write(plain, checkpoint), "True"), str(checkpoint), note=why_not)


def _resumes(words: Words) -> bool:
    return "resume" in words or (_RESUME.read(words) or "False") != "False"


def _saved_batch(checkpoint: Path) -> int | None:
    """Return the batch of the run that a checkpoint belongs to, from its args.yaml."""
    try:
        text = (checkpoint.parent.parent / "args.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    batch = re.search(r"^batch: *(\d+) *$", text, re.MULTILINE)
    return None if batch is None else int(batch[1])
