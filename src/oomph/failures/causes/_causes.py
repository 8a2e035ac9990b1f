"""Every cause by its kind."""

from __future__ import annotations

from .._kinds import Cause, FailureKind
from ._code_causes import CODE_CAUSES
from ._device_causes import DEVICE_CAUSES
from ._host_causes import HOST_CAUSES
from ._other_causes import GPU_CAUSES, SYSTEM_CAUSES
from ._symptom_causes import NUMERICS_CAUSES, SYMPTOM_CAUSES
from ._worker_causes import RANK_CAUSES, WORKER_CAUSES

_ALL = (
    *DEVICE_CAUSES,
    *HOST_CAUSES,
    *WORKER_CAUSES,
    *RANK_CAUSES,
    *SYMPTOM_CAUSES,
    *NUMERICS_CAUSES,
    *GPU_CAUSES,
    *CODE_CAUSES,
    *SYSTEM_CAUSES,
)
CAUSES: dict[FailureKind, Cause] = {cause.kind: cause for cause in _ALL}
