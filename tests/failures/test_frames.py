from __future__ import annotations

import sys
import weakref

import pytest

from oomph.failures import release_frames


class Big:
    """An object that can be referenced weakly, as a large local variable."""


def caught(depth: int = 2) -> tuple[BaseException, list[weakref.ref[Big]]]:
    """An exception whose frames hold an object each."""
    references = []

    def fail(level: int) -> None:
        local = Big()
        references.append(weakref.ref(local))
        if level == 0:
            raise MemoryError
        fail(level - 1)

    try:
        fail(depth)
    except MemoryError as error:
        return error, references
    raise AssertionError


def alive(references: list[weakref.ref[Big]]) -> int:
    return sum(reference() is not None for reference in references)


def test_the_locals_of_every_frame_are_freed_and_the_message_is_kept() -> None:
    error, references = caught()
    assert alive(references) == 3
    release_frames(error)
    assert alive(references) == 0
    assert error.__traceback__ is None
    assert type(error) is MemoryError


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_the_frames_of_chained_exceptions_are_freed(link: str) -> None:
    inner, references = caught()
    outer = RuntimeError("outer")
    setattr(outer, link, inner)
    release_frames(outer)
    assert alive(references) == 0


def test_a_cycle_of_causes_ends() -> None:
    first, references = caught()
    second = RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    release_frames(first)
    assert alive(references) == 0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_the_frames_of_a_groups_members_are_freed() -> None:
    members, references = zip(*(caught() for _ in range(2)), strict=True)
    group = ExceptionGroup("several", list(members))  # noqa: F821  newer than Python 3.10
    release_frames(group)
    assert alive([reference for group in references for reference in group]) == 0


def test_a_frame_that_still_runs_keeps_its_variables() -> None:
    local = Big()
    try:
        int("no number")
    except ValueError as error:
        release_frames(error)
    assert isinstance(local, Big)
