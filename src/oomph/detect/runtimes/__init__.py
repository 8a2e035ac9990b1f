"""Runtimes of exported detectors: ONNX Runtime, ExecuTorch, LiteRT. No torch at import."""

from ._executorch import executorch_metadata
from ._exported_file import ExportedFile
from ._formats import EXPORT_FORMATS, ExportFormat, is_exported, open_exported
from ._litert import append_litert_metadata
from ._silent_stderr import silent_stderr

__all__ = [
    "EXPORT_FORMATS",
    "ExportFormat",
    "ExportedFile",
    "append_litert_metadata",
    "executorch_metadata",
    "is_exported",
    "open_exported",
    "silent_stderr",
]
