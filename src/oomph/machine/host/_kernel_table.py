"""Parser of the kernel's "key value" files: /proc/meminfo, /proc/vmstat, /proc/self/status, memory.stat."""

from __future__ import annotations

import re

from .._fact import Fact, Unknown
from ._source import Source


class KernelTable:
    """Selected numbers of one kernel file.

    Args:
        source: The machine to read.
        path: The file.
        keys: The entries to read.
        scale: Factor for every value, such as 1024 for values in kB.
    """

    def __init__(self, source: Source, path: str, keys: tuple[str, ...], scale: int = 1) -> None:
        self._path = path
        text = source.text(path)
        self._missing = text if isinstance(text, Unknown) else Unknown("this kernel doesn't report it")
        pattern = rf"^({'|'.join(map(re.escape, keys))}):?[ \t]+(\d+)\b"
        matches = () if isinstance(text, Unknown) else re.finditer(pattern, text, re.MULTILINE)
        self._values = {match[1]: int(match[2]) * scale for match in matches}

    def get(self, key: str) -> int | None:
        """Return a value, or None if the file doesn't contain it."""
        return self._values.get(key)

    def fact(self, key: str) -> Fact[int]:
        """Return a value with its source."""
        return Fact(self._values.get(key, self._missing), f"{self._path} {key}")
