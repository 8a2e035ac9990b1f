"""YOLOv5's train.py. It accumulates to a nominal batch of 64 images by itself.

With --resume it takes all its options from the opt.yaml of the run, and ignores those of the command line. So the
batch of a run that resumes is read there, and the smaller one is written there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ._checkpoints import newest_of_run
from ._flags import Flag, Words, has_flag, script
from ._program import BatchFlags, FailedRun, Restart
from ._saved_options import write_options
from ._settings import BatchSettings

_FLAGS = BatchFlags(
    batch=Flag(("--batch-size", "--batch")),
    batch_default=16,
    accumulate=None,
    workers=Flag(("--workers",)),
    workers_default=8,
    is_shared=True,
    nominal=64,
)
_PROJECT, _RESUME = Flag(("--project",)), Flag(("--resume",))
_HEAD_BYTES = 4096


class Yolov5:
    """YOLOv5's train.py."""

    name = "YOLOv5's train.py"

    @staticmethod
    def matches(words: Words) -> bool:
        """Return True for train.py of YOLOv5, by its own text or by its flags."""
        path = Path(script(words))
        if path.name != "train.py":
            return False
        try:
            with path.open("rb") as file:
                if b"YOLOv5" in file.read(_HEAD_BYTES):
                    return True
        except OSError:
            pass
        return has_flag(words, "--data") and has_flag(words, "--weights", "--cfg", "--hyp")

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings; None for --batch-size -1, where YOLOv5 chooses the batch itself."""
        settings = _FLAGS.read(words)
        if settings is None or not has_flag(words, *_RESUME.names):
            return settings
        checkpoint = _resumed(words)
        saved = None if checkpoint is None else _read_options(_options(checkpoint))
        return None if saved is None else replace(settings, batch=saved[0], workers=saved[1])

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart:
        """Resume the last.pt of this run with a smaller batch, or start again without one."""
        project = _PROJECT.read(run.words)
        folders = [Path(project)] if project else list({Path("runs"), Path(script(run.words)).parent / "runs"})
        found, why_not = newest_of_run(run, folders, "**/weights/last.pt")
        checkpoint = found or _resumed(run.words)
        smaller = _FLAGS.write(run.words, settings)
        if checkpoint is None:
            return Restart(smaller, note=why_not)
        note = " ".join(filter(None, (why_not, _write_options(_options(checkpoint), settings))))
        return Restart(_with_resume(smaller, str(checkpoint)), str(checkpoint), note)


def _resumed(words: Words) -> Path | None:
    """Return the checkpoint that the command names; without a name, YOLOv5 takes the newest of all runs."""
    value = _RESUME.read(words)
    return None if value is None or value.startswith("-") else Path(value)


def _with_resume(words: Words, checkpoint: str) -> Words:
    if "--resume" in words:  # its value is optional
        position = words.index("--resume")
        end = position + 1
        if end < len(words) and not words[end].startswith("-"):
            end += 1
        return (*words[:position], "--resume", checkpoint, *words[end:])
    return _RESUME.write(words, checkpoint)


def _options(checkpoint: Path) -> Path:
    return checkpoint.parent.parent / "opt.yaml"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _read_options(path: Path) -> tuple[int, int] | None:
    """Return batch and workers of the saved options; None if they aren't there."""
    text = _read_text(path)
    batch, workers = (re.search(rf"^{name}: *(\d+) *$", text, re.MULTILINE) for name in ("batch_size", "workers"))
    return None if batch is None or workers is None else (int(batch[1]), int(workers[1]))


def _write_options(path: Path, settings: BatchSettings) -> str:
    """Write batch and workers into the saved options of the run; return what was changed, as a sentence."""
    text = _read_text(path)
    changed = re.sub(r"^batch_size: *-?\d+ *$", f"batch_size: {settings.batch}", text, flags=re.MULTILINE)
    if settings.workers is not None:
        changed = re.sub(r"^workers: *\d+ *$", f"workers: {settings.workers}", changed, flags=re.MULTILINE)
    if changed == text:
        return ""
    return write_options(path, changed, "batch_size and workers", "YOLOv5")
