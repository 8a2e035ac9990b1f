"""Error texts as several versions of libraries print them, with their kinds.

They are in `texts/`; the line before each text contains its kind and the name of the case.
"""

from __future__ import annotations

import re
from pathlib import Path

from oomph.failures import FailureKind

Case = tuple[FailureKind, str, str]


def read_cases(name: str) -> tuple[Case, ...]:
    """Return the cases of a file."""
    text = (Path(__file__).parent / "texts" / f"{name}.txt").read_text(encoding="utf-8")
    parts = re.split(r"^=== (\S+) \| (.+)\n", text, flags=re.MULTILINE)[1:]
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return tuple((FailureKind(kind), title, body.removesuffix("\n")) for kind, title, body in triples)


MEMORY, NUMERICS, NOT_MEMORY = read_cases("memory"), read_cases("numerics"), read_cases("not_memory")
