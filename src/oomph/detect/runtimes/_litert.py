"""LiteRT files, formerly TensorFlow Lite. Metadata is a zip archive after the model, as TFLite's own metadata is."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ._exported_file import ExportedFile, parse_entries
from ._silent_stderr import silent_stderr

_METADATA_FILE = "metadata.json"
_MAX_METADATA_BYTES = 2**20
_IMAGE_DIMENSIONS = 4


def open_litert(path: Path, threads: int | None) -> ExportedFile:
    """Load a LiteRT file."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415  an extra

    with silent_stderr():
        interpreter = Interpreter(model_path=str(path), num_threads=threads)
        interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()

    def run_image(image: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        interpreter.set_tensor(inputs[0]["index"], image[None])
        interpreter.invoke()
        return [interpreter.get_tensor(output["index"]) for output in outputs]

    def run(pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        rows = [run_image(image) for image in pixels]
        return rows[0] if len(rows) == 1 else [np.concatenate(level) for level in zip(*rows, strict=True)]

    channels = tuple(_shape(output["shape"])[1] for output in outputs)
    return ExportedFile(run, _read_entries(path), channels, max_side=_shape(inputs[0]["shape"])[-1], is_fixed=True)


def append_litert_metadata(path: Path, entries: Mapping[str, str]) -> None:
    """Append metadata to a LiteRT file."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_METADATA_FILE, json.dumps(dict(entries)))


def _shape(sizes: NDArray[np.int32]) -> tuple[int, ...]:
    """Return the shape of an input or output, or zeros if it isn't that of images."""
    return tuple(sizes.tolist()) if len(sizes) == _IMAGE_DIMENSIONS else (0,) * _IMAGE_DIMENSIONS


def _read_entries(path: Path) -> dict[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(_METADATA_FILE).file_size > _MAX_METADATA_BYTES:
                return {}
            return parse_entries(archive.read(_METADATA_FILE))
    except (zipfile.BadZipFile, KeyError):
        return {}
