"""Every cause by its kind."""

from __future__ import annotations

from ._causes import MEMORY_CAUSES
from ._kind import Cause, FailureKind
from ._others import OTHER_CAUSES

CAUSES: dict[FailureKind, Cause] = {cause.kind: cause for cause in (*MEMORY_CAUSES, *OTHER_CAUSES)}
