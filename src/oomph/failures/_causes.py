"""Every cause by its kind."""

from __future__ import annotations

from ._kinds import Cause, FailureKind
from ._memory import MEMORY_CAUSES
from ._not_memory import OTHER_CAUSES

CAUSES: dict[FailureKind, Cause] = {cause.kind: cause for cause in (*MEMORY_CAUSES, *OTHER_CAUSES)}
