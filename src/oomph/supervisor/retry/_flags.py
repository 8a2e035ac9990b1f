"""Reading and changing the flags of a command line that belongs to another program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Words = tuple[str, ...]

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")


@dataclass(frozen=True)
class Flag:
    """A flag with a value, in any of the forms `--name value`, `--name=value` and `name=value`.

    Attributes:
        names: Its names, the usual one first, with their dashes if they have any.
    """

    names: tuple[str, ...]

    def read(self, words: Sequence[str]) -> str | None:
        """Return its last value, which is the one that counts; None if it isn't given."""
        position = self._position(words)
        if position is None:
            return None
        name, equals, value = words[position].partition("=")
        del name
        return value if equals else words[position + 1]

    def read_number(self, words: Sequence[str], default: int | None) -> int | None:
        """Return its value as a number: the default if it isn't given, None if it is not a number."""
        text = self.read(words)
        if text is None:
            return default
        return int(text) if text.lstrip("-").isdigit() else None

    def write(self, words: Sequence[str], value: object) -> Words:
        """Return the command line with another value; the flag is appended if it isn't given."""
        position = self._position(words)
        name = self.names[0]
        if position is None:
            return (*words, name, str(value)) if name.startswith("-") else (*words, f"{name}={value}")
        name, equals, _ = words[position].partition("=")
        if equals:
            return (*words[:position], f"{name}={value}", *words[position + 1 :])
        return (*words[: position + 1], str(value), *words[position + 2 :])

    def _position(self, words: Sequence[str]) -> int | None:
        start = arguments_start(words)
        for position in range(len(words) - 1, start - 1, -1):
            name, equals, _ = words[position].partition("=")
            has_value = bool(equals) or (name.startswith("-") and position + 1 < len(words))
            if name in self.names and has_value:
                return position
        return None


def arguments_start(words: Sequence[str]) -> int:
    """Return where the arguments of the training program begin, after python, torchrun and their own flags."""
    for position, word in enumerate(words):
        if word.endswith(".py") or (position and words[position - 1] == "-m" and not _is_launcher(word)):
            return position + 1
    return 1


def script(words: Sequence[str]) -> str:
    """Return the training program: a script, a module after `-m`, or the command itself."""
    return words[arguments_start(words) - 1] if words else ""


def has_flag(words: Sequence[str], *names: str) -> bool:
    """Return True if one of the flags is among the arguments of the training program."""
    return any(word.partition("=")[0] in names for word in words[arguments_start(words) :])


def launcher_flag(words: Sequence[str], *names: str) -> str | None:
    """Return the value of a flag of torchrun or accelerate in front of a command; None if it isn't given."""
    launcher = words[: arguments_start(words) - 1]
    for position, word in enumerate(launcher):
        name, equals, value = word.replace("_", "-").partition("=")
        if name in names:
            return value if equals else words[position + 1]
    return None


def ranks_per_node(words: Sequence[str]) -> int:
    """Return the number of processes that torchrun in front of a command starts here; 1 without one or a number."""
    text = launcher_flag(words, "--nproc-per-node", "--num-processes") or ""
    return max(int(text), 1) if text.isdigit() else 1


def _is_launcher(module: str) -> bool:
    return module.startswith(("torch.distributed", *_LAUNCHERS))
