"""Commands of any program with placeholders: `{batch}`, `{accumulate}` and `{resume}`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import UsageError, quote
from ._flags import Flag, Words
from ._program import FailedRun, Restart
from ._settings import BatchSettings

_BATCH, _ACCUMULATE, _RESUME = "{batch}", "{accumulate}", "{resume}"
_WORKERS = Flag(("--workers", "--num_workers", "--num-workers", "--dataloader_num_workers", "workers", "num_workers"))


@dataclass(frozen=True)
class Template:
    """A command with placeholders; other braces are text.

    Attributes:
        batch: The first batch size.
        resume: The words that replace `{resume}` when the command is started again, if the file that they name exists.
    """

    batch: int
    resume: Words = ()

    name = "a command with {batch}"

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings of the first start."""
        uses_accumulate = any(_ACCUMULATE in word for word in words)
        return BatchSettings(self.batch, 1 if uses_accumulate else None, _WORKERS.read_number(words, None))

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart:
        """Return the command with its placeholders replaced; without a checkpoint it starts from the beginning."""
        missing = next(filter(None, map(_missing_file, self.resume)), "")
        if missing:
            note = f"There is no {missing} yet, so {_RESUME} is empty."
            return Restart(self.resize(run.words, settings), note=note)
        words = _fill(run.words, settings, self.resume)
        return Restart(words, resume=shlex.join(self.resume))

    def resize(self, words: Words, settings: BatchSettings) -> Words:
        """Return the command with its placeholders replaced, as for a start from the beginning."""
        return _fill(words, settings, ())

    def first(self, words: Words) -> Words:
        """Return the command of the first start."""
        settings = self.read(words)
        assert settings is not None  # noqa: S101  a template has a batch size
        return self.resize(words, settings)


def _fill(words: Words, settings: BatchSettings, resume: Words) -> Words:
    if settings.workers is not None:
        words = _WORKERS.write(words, settings.workers)
    return tuple(_filled(words, settings, resume))


def _filled(words: Words, settings: BatchSettings, resume: Words) -> Iterator[str]:
    for word in words:
        if word == _RESUME:
            yield from resume
        else:
            text = word.replace(_BATCH, str(settings.batch)).replace(_ACCUMULATE, str(settings.accumulate or 1))
            yield text.replace(_RESUME, shlex.join(resume))


def _missing_file(word: str) -> str:
    """Return the file or folder that an argument names if it doesn't exist; empty for words that are no paths."""
    value = word.partition("=")[2] or word
    is_path = "/" in value or Path(value).suffix[1:2].isalpha()
    if value.startswith("-") or not is_path or "://" in value or _exists(word) or _exists(value):
        return ""
    return value


def _exists(path: str) -> bool:
    return os.path.exists(os.path.expanduser(path))  # noqa: PTH110, PTH111  Path raises for a text that can't be one


def parse_template(words: Words, batch: int | None, resume: str | None) -> Template | None:
    """Return the template of a command; None if it has no placeholders.

    Raises:
        UsageError: Placeholders and options don't match.
    """
    if batch is None and resume is None:
        return None  # braces are text then
    text = "\0".join(words)
    if batch is None or _BATCH not in text:
        missing = "--batch" if batch is None else _BATCH
        raise UsageError(
            f"the command has no {missing}", f"give both, such as --batch 64 -- python train.py --batch-size {_BATCH}"
        )
    if resume is None and _RESUME in text:
        raise UsageError(f"the command has {_RESUME} but no --resume-args", "add --resume-args '--resume last.pt'")
    if resume is not None and _RESUME not in text:
        raise UsageError(f"--resume-args is given, but the command has no {_RESUME}", f"add {_RESUME} to the command")
    try:
        return Template(batch, tuple(shlex.split(resume or "")))
    except ValueError as error:
        raise UsageError(f"--resume-args is {quote(resume)} ({error})", "close its quotes") from None
