"""Checkpoint files: weights, metadata of exported files, and reading any .pt file without executing code from it."""

from ._export_metadata import ExportMetadata
from ._safe_checkpoint import SafeCheckpoint, open_checkpoint, read_checkpoint
from ._weights import Weights, load_weights, read_weights, save_weights

__all__ = [
    "ExportMetadata",
    "SafeCheckpoint",
    "Weights",
    "load_weights",
    "open_checkpoint",
    "read_checkpoint",
    "read_weights",
    "save_weights",
]
