"""YOLOv5's train.py. It accumulates to a nominal batch of 64 images by itself.

With --resume it takes all its options from the opt.yaml of the run, and ignores those of the command line. So the
batch of a run that resumes is read there, and a restart needs the smaller one there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ._checkpoints import YOLO_FOLDER, newest_of_run
from ._file_edit import FileEdit
from ._flags import Flag, Words, has_flag, script
from ._program import BatchFlags, FailedRun, Restart, read_script
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
_HEAD = 4096  # characters


class Yolov5:
    """YOLOv5's train.py."""

    name = "YOLOv5's train.py"

    @staticmethod
    def matches(words: Words) -> bool:
        """Return True for train.py of YOLOv5, by its text: its flags are also those of YOLOv7, YOLOR and others.

        Those, and YOLOv5 until version 5, resume with the `total_batch_size` of opt.yaml.
        """
        if Path(script(words)).name != "train.py":
            return False
        text = read_script(words)
        return "YOLOv5" in text[:_HEAD] and "opt.yaml" in text and "total_batch_size" not in text

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings; None for --batch-size -1, where YOLOv5 chooses the batch itself."""
        settings = _FLAGS.read(words)
        if settings is None or not has_flag(words, *_RESUME.names):
            return settings
        checkpoint = _resumed(words)
        saved = None if checkpoint is None else _read_options(_options(checkpoint))
        return None if saved is None else replace(settings, batch=saved[0], workers=saved[1])

    def resize(self, words: Words, settings: BatchSettings) -> Words:
        """Return the command line with another batch, which counts unless it resumes."""
        return _FLAGS.write(words, settings)

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart:
        """Resume the last.pt of this run with a smaller batch, or start again without one."""
        project = _PROJECT.read(run.words)
        folders = [Path(project)] if project else list({Path("runs"), Path(script(run.words)).parent / "runs"})
        found, why_not = newest_of_run(run, folders, "**/weights/last.pt", YOLO_FOLDER)
        checkpoint = found or _resumed(run.words)
        smaller = _FLAGS.write(run.words, settings)
        if checkpoint is None:
            return Restart(smaller, note=why_not)
        edit = _options_edit(_options(checkpoint), settings)
        return Restart(_with_resume(smaller, str(checkpoint)), str(checkpoint), edit, why_not)


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


def _options_edit(path: Path, settings: BatchSettings) -> FileEdit | None:
    """Return the edit that puts batch and workers into the saved options of the run; None if they are there."""
    text = _read_text(path)
    changed = re.sub(r"^batch_size: *-?\d+ *$", f"batch_size: {settings.batch}", text, flags=re.MULTILINE)
    if settings.workers is not None:
        changed = re.sub(r"^workers: *\d+ *$", f"workers: {settings.workers}", changed, flags=re.MULTILINE)
    return None if changed == text else FileEdit(path, changed, "batch_size and workers", "YOLOv5")
