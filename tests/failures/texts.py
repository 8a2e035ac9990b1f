"""Error texts in the forms that libraries of several versions write them, with the kind that each is.

They lie in `texts/`, one after the other; the line before each says its kind and what to call the case.
"""

from __future__ import annotations

import re
from pathlib import Path

from oomph.failures import FailureKind

Case = tuple[FailureKind, str, str]


def cases(name: str) -> tuple[Case, ...]:
    """The cases of one file."""
    text = (Path(__file__).parent / "texts" / f"{name}.txt").read_text(encoding="utf-8")
    parts = re.split(r"^=== (\S+) \| (.+)\n", text, flags=re.MULTILINE)[1:]
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return tuple((FailureKind(kind), title, body.removesuffix("\n")) for kind, title, body in triples)


MEMORY, NUMBERS, OTHER = cases("memory"), cases("numbers"), cases("other")
