"""Rule `unknown-nvidia-smi-field`: fields and options that nvidia-smi doesn't know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...sources import CommandLine, Document, Word
from ._names import is_placeholder, nearest, place_in_word, replacement
from ._nvidia_smi_names import HINTS, SAME_NAMES, known_names

_PROGRAM = re.compile(r"(?:.*[\\/])?nvidia-smi(?:\.exe)?")
_FORMATS = frozenset({"csv", "noheader", "nounits"})


def _check(document: Document) -> Iterator[Problem]:
    for command in document.commands:
        if "nvidia-smi" not in command.text:
            continue
        for words in command.commands:
            start = next((number for number, word in enumerate(words) if _PROGRAM.fullmatch(word.text)), None)
            if start is not None and (start == 0 or words[start - 1].text not in {"which", "command", "-v", "man"}):
                yield from _check_arguments(command, words[start + 1 :])


def _check_arguments(command: CommandLine, words: Sequence[Word]) -> Iterator[Problem]:
    if words and re.fullmatch(r"[a-z][a-z0-9-]+", words[0].text):
        is_known = words[0].text in known_names()["command"]
        if not is_known and len(words) == 1 and not command.is_string:
            message = f"nvidia-smi has no command `{words[0].text}`: see nvidia-smi --help for its commands and options"
            yield Problem(command.span_of(words[0]), message)
        return
    for number, word in enumerate(words):
        name, _, value = word.text.partition("=")
        if name.startswith("--query-") and name in known_names():
            yield from _check_query(command, name, words[number:])
        elif name == "--format":
            yield from _check_format(command, word, value)
        elif name.startswith("--"):
            yield from _check_option(command, word, name)
        elif _is_unknown_letter(name):
            yield Problem(command.span_of(word), f"nvidia-smi has no option `{name}`: see nvidia-smi --help")


def _is_unknown_letter(name: str) -> bool:
    """Return True for an option such as `-n`; several of one letter may be joined, as in `-qx`."""
    match = re.match(r"-([A-Za-z]+)", name)
    return match is not None and match[1] not in known_names()["letters"] and not set(match[1]) <= set("qxuh")


def _check_query(command: CommandLine, switch: str, words: Sequence[Word]) -> Iterator[Problem]:
    """Check the fields of a switch: after `=`, or in the next word."""
    known = known_names()[switch]
    word, rest = words[0], words[1:]
    value = word.text.partition("=")[2]
    if "=" not in word.text:
        if not rest or rest[0].text.startswith("-"):
            return
        word, rest, value = rest[0], rest[1:], rest[0].text
    position = command.text[word.start : word.end].find("=") + 1
    names = value.split(",")
    if value.endswith(","):
        names += [part for other in rest if not other.text.startswith("-") for part in other.text.split(",")]
    listed = {name.strip().lower() for name in names}
    for field in (name.strip() for name in names):
        if is_placeholder(field) or field.lower() in known:
            continue
        span, position = place_in_word(command, word, field, position)
        same = SAME_NAMES.get(switch, {}).get(field.lower()) or _swapped(field.lower(), known)
        hint = HINTS.get(field.lower())
        other = same or (None if hint else nearest(field.lower(), known))
        advice = f"write {other}" if other else hint or f"see nvidia-smi --help-{switch[2:]}"
        if other in listed:
            advice, same = f"remove it, {other} is listed as well", None
        listed.add(same or "")
        message = f"nvidia-smi {switch} has no field `{field}` and prints nothing but an error: {advice}"
        yield Problem(span, message, replacement(span, command, same) if same else ())


def _swapped(field: str, known: frozenset[str]) -> str | None:
    """Return the field with the same parts in another order or with other separators."""
    parts = sorted(re.split(r"[._-]", field))
    return next((name for name in sorted(known) if sorted(re.split(r"[._]", name)) == parts), None)


def _check_format(command: CommandLine, word: Word, value: str) -> Iterator[Problem]:
    for name in value.split(","):
        if name.strip() not in _FORMATS and not is_placeholder(name):
            span, _ = place_in_word(command, word, name)
            yield Problem(
                span, f"nvidia-smi has no format `{name}`: it prints csv, with noheader and nounits if wanted"
            )


def _check_option(command: CommandLine, word: Word, name: str) -> Iterator[Problem]:
    options = known_names()["option"]
    if name in options or name == "--" or name.startswith("--help") or is_placeholder(name):
        return
    span, _ = place_in_word(command, word, name)
    same = SAME_NAMES[""].get(name)
    other = same or nearest(name, options)
    advice = f"write {other}" if other else "see nvidia-smi --help"
    yield Problem(
        span, f"nvidia-smi has no option `{name}`: {advice}", replacement(span, command, same) if same else ()
    )


UNKNOWN_NVIDIA_SMI_FIELD = Rule(
    "unknown-nvidia-smi-field",
    RuleFamily.COMMANDS,
    "A field or option that nvidia-smi doesn't have",
    _check,
    triggers=("nvidia-smi",),
    is_fixable=True,
)
