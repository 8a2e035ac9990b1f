"""What a change is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...machine import Target
from ...settings import Settings


@dataclass(frozen=True)
class Context:
    """What decides whether a change is possible.

    Attributes:
        target: where the Job runs.
        has_convolutions: True if the Job has convolutions.
        classes: number of classes of the Job's cross entropy, the largest one; 0 if it has none.
    """

    target: Target
    has_convolutions: bool
    classes: int = 0


def _no_improvement(settings: Settings, context: Context) -> tuple[Settings, ...]:
    del settings, context
    return ()


@dataclass(frozen=True)
class Change:
    """A kind of change to settings.

    Attributes:
        setting: the field of Settings that it changes.
        describe: what changes from some settings to others, and what it costs, as two sentences without a period.
        improved: settings that need less memory or time and cost nothing, the best one first; a Job may not allow all.
        permission: what the user has to allow, because results change; None if they don't.
        value: the only value of the field that it is about; None for all.
        for_memory: True if it is made only where memory is short, and only if it saves some.
    """

    setting: str
    describe: Callable[[Settings, Settings], tuple[str, str]]
    improved: Callable[[Settings, Context], tuple[Settings, ...]] = _no_improvement
    permission: str | None = None
    value: object = None
    for_memory: bool = False

    def is_in(self, before: Settings, after: Settings) -> bool:
        """Return True if settings differ in this."""
        value = getattr(after, self.setting)
        return bool(getattr(before, self.setting) != value) and self.value in {None, value}
