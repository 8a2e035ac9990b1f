"""Every cause by its kind."""

from __future__ import annotations

from ._kinds import Cause, FailureKind
from ._memory_causes import MEMORY_CAUSES
from ._other_causes import OTHER_CAUSES

CAUSES: dict[FailureKind, Cause] = {cause.kind: cause for cause in (*MEMORY_CAUSES, *OTHER_CAUSES)}
