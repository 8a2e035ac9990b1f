"""YOLOv5's train.py. It accumulates to a nominal batch of 64 images by itself.

With --resume it takes all its options from the opt.yaml of the run, and ignores those of the command line. So the
smaller batch is written there, too.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...files import write_atomically
from ._checkpoints import newest
from ._flags import Flag, Words, has_flag, script
from ._program import BatchFlags, Restart
from ._settings import BatchSettings

_FLAGS = BatchFlags(
    batch=Flag(("--batch-size", "--batch")),
    batch_default=16,
    accumulate=None,
    workers=Flag(("--workers",)),
    workers_default=8,
    is_shared=True,
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
        return _FLAGS.read(words)

    def restart(self, words: Words, settings: BatchSettings, since: float) -> Restart:
        """Resume the newest last.pt of this run with a smaller batch, or start again without one."""
        smaller = _FLAGS.write(words, settings)
        project = _PROJECT.read(words)
        folders = [Path(project)] if project else [Path("runs"), Path(script(words)).parent / "runs"]
        found = (newest(folder, ("**/weights/last.pt",), since) for folder in folders)
        checkpoint = next((path for path in found if path is not None), None)
        if checkpoint is None:
            return Restart(smaller)
        note = _write_options(checkpoint.parent.parent / "opt.yaml", settings)
        return Restart(_with_resume(smaller, str(checkpoint)), str(checkpoint), note)


def _with_resume(words: Words, checkpoint: str) -> Words:
    if "--resume" in words:  # its value is optional
        position = words.index("--resume")
        end = position + 1
        if end < len(words) and not words[end].startswith("-"):
            end += 1
        return (*words[:position], "--resume", checkpoint, *words[end:])
    return _RESUME.write(words, checkpoint)


def _write_options(path: Path, settings: BatchSettings) -> str:
    """Write the batch and workers into the saved options of the run; return what was changed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    changed = re.sub(r"^batch_size: *-?\d+ *$", f"batch_size: {settings.batch}", text, flags=re.MULTILINE)
    if settings.workers is not None:
        changed = re.sub(r"^workers: *\d+ *$", f"workers: {settings.workers}", changed, flags=re.MULTILINE)
    if changed == text:
        return ""
    write_atomically(path, lambda file: file.write(changed.encode()))
    return f"batch_size and workers were also changed in {path}, where YOLOv5 reads them when it resumes"
