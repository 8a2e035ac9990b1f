"""Failure texts as people post them, with what a good answer contains.

They are in `posts/`, whose README says who has seen them. A case starts with `=== name` and header lines:

- cause, resource: kinds and resources, with `|` between those that are all right. `none` is a text without a failure,
  and among other causes one that the run has survived.
- sure: `yes` if the text proves the cause.
- advice, first, never: regular expressions that some piece of advice, the first one, and none may match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "posts"


@dataclass(frozen=True)
class Post:
    """A text with its labels."""

    name: str
    text: str
    causes: frozenset[str]
    resources: frozenset[str]
    is_sure: bool
    advice: str
    first: str
    never: str


def read_posts(folder: str) -> tuple[Post, ...]:
    """Return the cases of a folder."""
    return tuple(
        post for path in sorted((_FOLDER / folder).glob("*.txt")) for post in _read(path.read_bytes().decode("utf-8"))
    )


def _read(text: str) -> list[Post]:
    return [_parse(part) for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]]


def _parse(part: str) -> Post:
    head, _, body = part.partition("\n---\n")
    name, *lines = head.splitlines()
    fields = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return Post(
        name,
        body,
        frozenset(fields["cause"].split("|")),
        frozenset(fields.get("resource", "none").split("|")),
        fields.get("sure") == "yes",
        fields.get("advice", ".*"),
        fields.get("first", ""),
        fields.get("never", ""),
    )
