"""ExecuTorch programs. Their Python bindings need torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._exported_file import ExportedFile, parse_entries
from ._silent_stderr import silent_stderr

_METADATA_METHOD = "oomph_metadata"
_IMAGE_DIMENSIONS = 4


def open_executorch(path: Path, threads: int | None) -> ExportedFile:
    """Load an ExecuTorch program."""
    import torch  # noqa: PLC0415  the bindings link to its libraries

    # The public module executorch.runtime has the same functions and imports the exporter: 130 MiB and 2 seconds.
    from executorch.extension.pybindings import _C  # noqa: PLC0415

    with silent_stderr():
        if threads is not None:
            _C._unsafe_reset_threadpool(threads)  # noqa: SLF001  no program runs yet
        program = _C._load_program(  # noqa: SLF001
            str(path), program_verification=_C.Verification.InternalConsistency
        )
        method = program.load_method("forward")

    def run(pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        # A program ignores strides: it would read channels-last images, which the loader returns, as channels first.
        images = torch.from_numpy(np.ascontiguousarray(pixels))
        rows = [method((image,)) for image in images.split(1)]
        return [torch.cat(level).numpy() if len(level) > 1 else level[0].numpy() for level in zip(*rows, strict=True)]

    description = program.method_meta("forward")
    channels = tuple(_sizes(description.output_tensor_meta(n))[1] for n in range(description.num_outputs()))
    return ExportedFile(run, _read_entries(program), channels, max_side=_sizes(description.input_tensor_meta(0))[-1])


def executorch_metadata(entries: Mapping[str, str]) -> dict[str, str]:
    """Return the constant methods of a program that has this metadata: method name and result."""
    return {_METADATA_METHOD: json.dumps(dict(entries))}


def _sizes(tensor: Any) -> tuple[int, ...]:
    """Return the shape of an input or output, or zeros if it isn't that of images."""
    sizes: tuple[int, ...] = tuple(tensor.sizes())
    return sizes if len(sizes) == _IMAGE_DIMENSIONS else (0,) * _IMAGE_DIMENSIONS


def _read_entries(program: Any) -> dict[str, str]:
    names = {program.get_method_name(number) for number in range(program.num_methods())}
    if _METADATA_METHOD not in names:
        return {}
    text, *_ = program.load_method(_METADATA_METHOD)(())
    return parse_entries(text) if isinstance(text, str) else {}
