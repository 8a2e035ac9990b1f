"""Rules about commands and settings."""

from __future__ import annotations

from ._alloc_conf import ALLOC_CONF_UNKNOWN
from ._cloud_machines import UNKNOWN_CLOUD_MACHINE
from ._late_environment import ENV_SET_TOO_LATE
from ._nested_escape import NESTED_SHELL_ESCAPE
from ._nvidia_smi import UNKNOWN_NVIDIA_SMI_FIELD
from ._yolo_flags import UNKNOWN_YOLO_FLAG

COMMAND_RULES = (
    UNKNOWN_NVIDIA_SMI_FIELD,
    UNKNOWN_YOLO_FLAG,
    NESTED_SHELL_ESCAPE,
    ENV_SET_TOO_LATE,
    ALLOC_CONF_UNKNOWN,
    UNKNOWN_CLOUD_MACHINE,
)

__all__ = [
    "ALLOC_CONF_UNKNOWN",
    "COMMAND_RULES",
    "ENV_SET_TOO_LATE",
    "NESTED_SHELL_ESCAPE",
    "UNKNOWN_CLOUD_MACHINE",
    "UNKNOWN_NVIDIA_SMI_FIELD",
    "UNKNOWN_YOLO_FLAG",
]
