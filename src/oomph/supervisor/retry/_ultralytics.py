"""The `yolo` command of Ultralytics. It accumulates to a nominal batch of 64 images by itself."""

from __future__ import annotations

from pathlib import Path

from ._checkpoints import newest
from ._flags import Flag, Words, script
from ._program import BatchFlags, Restart
from ._settings import BatchSettings

_FLAGS = BatchFlags(
    batch=Flag(("batch",)),
    batch_default=16,
    accumulate=None,
    workers=Flag(("workers",)),
    workers_default=8,
)
_MODEL, _RESUME, _PROJECT = Flag(("model",)), Flag(("resume",)), Flag(("project",))


class Ultralytics:
    """`yolo train`, `yolo detect train` and `yolo mode=train`."""

    name = "`yolo train`"

    @staticmethod
    def matches(words: Words) -> bool:
        """Return True for training by the yolo command."""
        is_yolo = Path(words[0]).name == "yolo" or script(words) == "ultralytics"
        return is_yolo and bool({"train", "mode=train"} & set(words))

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings; None if the batch is automatic (batch=-1, batch=0.7)."""
        return _FLAGS.read(words)

    def restart(self, words: Words, settings: BatchSettings, since: float) -> Restart:
        """Resume the newest last.pt of this run; the batch of the command line counts there."""
        smaller = _FLAGS.write(words, settings)
        checkpoint = newest(Path(_PROJECT.read(words) or "runs"), ("**/weights/last.pt",), since)
        if checkpoint is None:
            return Restart(smaller)
        plain = tuple(word for word in smaller if word != "resume")
        resumed = _RESUME.write(_MODEL.write(plain, checkpoint), "True")
        return Restart(resumed, str(checkpoint))
