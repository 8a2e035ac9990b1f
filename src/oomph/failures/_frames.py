"""Memory that an exception keeps alive: its traceback holds frames, and the frames hold their local variables."""

from __future__ import annotations

import traceback


def release_frames(error: BaseException) -> None:
    """Clear the frames of an exception, of those that it was raised from and of a group's members.

    The exceptions lose their tracebacks. Frames that are still running are left alone.
    """
    queue: list[BaseException | None] = [error]
    seen: set[int] = set()
    while queue:
        current = queue.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        traceback.clear_frames(current.__traceback__)
        queue += [current.__cause__, current.__context__, *group_members(current)]
        current.__traceback__ = None


def group_members(error: BaseException) -> list[BaseException]:
    """Return the exceptions of an exception group; Python 3.10 has no class for groups."""
    members = getattr(error, "exceptions", ())
    return [member for member in members if isinstance(member, BaseException)] if isinstance(members, tuple) else []
