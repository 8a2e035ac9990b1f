"""Options that a program has saved with a run, and reads again when it resumes the run."""

from __future__ import annotations

from pathlib import Path

from ...files import write_atomically


def write_options(path: Path, text: str, names: str, program: str) -> str:
    """Replace a file with saved options; return what was changed, as a sentence.

    Args:
        path: The file.
        text: Its new content.
        names: The options that differ.
        program: The program that reads it.
    """
    reason = f"{program} reads the batch there when it resumes."
    try:
        write_atomically(path, lambda file: file.write(text.encode()))
    except OSError as error:
        return f"{path} can't be changed ({error.strerror}), and {reason}"
    return f"{path} was changed, too ({names}): {reason}"
