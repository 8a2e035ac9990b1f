"""Files with saved options, which a program reads again when it resumes a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...files import write_atomically


@dataclass(frozen=True)
class FileEdit:
    """A change of a file that a restart needs; advice only describes it.

    Attributes:
        path: The file.
        text: Its new content.
        names: The options that differ, as text.
        program: The program that reads it.
    """

    path: Path
    text: str
    names: str
    program: str

    def write(self) -> None:
        """Replace the file.

        Raises:
            OSError: It can't be written.
        """
        write_atomically(self.path, lambda file: file.write(self.text.encode()))

    def __str__(self) -> str:
        return f"{self.path} was changed, too ({self.names}): {self.program} reads the batch there when it resumes."
