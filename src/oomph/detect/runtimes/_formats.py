"""Formats of exported detectors, by suffix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import MissingFile, OomphError, UsageError, describe
from ._executorch import open_executorch
from ._exported_file import ExportedFile
from ._litert import open_litert
from ._onnx import open_onnx


@dataclass(frozen=True)
class ExportFormat:
    """A format of exported detectors.

    Attributes:
        name: name for users.
        package: the package that runs its files.
        extra: oomph's extra with that package.
        open: loads a file with a number of threads, or with the runtime's default if None.
    """

    name: str
    package: str
    extra: str
    open: Callable[[Path, int | None], ExportedFile]

    @property
    def fix(self) -> str:
        """What to do if a package is missing."""
        return f"run `pip install 'oomph[{self.extra}]'`"


EXPORT_FORMATS = {
    ".onnx": ExportFormat("ONNX", "onnxruntime", "export", open_onnx),
    ".pte": ExportFormat("ExecuTorch", "executorch", "executorch", open_executorch),
    ".tflite": ExportFormat("LiteRT", "ai-edge-litert", "litert", open_litert),
}


def is_exported(path: Path) -> bool:
    """Return True if a file is an exported detector by its name."""
    return path.suffix.lower() in EXPORT_FORMATS


def open_exported(path: Path, threads: int | None = None) -> ExportedFile:
    """Load an exported file on the CPU.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't in the format of its suffix, or its runtime isn't installed.
    """
    kind = EXPORT_FORMATS[path.suffix.lower()]
    if not path.is_file():
        raise MissingFile(f"there is no file '{path}'", "check the path")
    try:
        return kind.open(path, threads)
    except ModuleNotFoundError:
        raise UsageError(f"{path} needs the package {kind.package}, which isn't installed", kind.fix) from None
    except OomphError:
        raise
    except Exception as error:  # noqa: BLE001  exceptions of the runtimes have no common base class
        raise UsageError(f"{path} can't be read as {kind.name} file ({describe(error)})", "export it again") from None
