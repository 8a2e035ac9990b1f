"""The group of methods of `oomph shrink`."""

import typer

from ._compare import compare
from ._distill import distill
from ._executorch import executorch
from ._litert import litert
from ._onnx import onnx
from ._prune import prune
from ._quantize import quantize
from ._tflite import tflite

_METHODS = (prune, distill, quantize, onnx, executorch, litert, tflite, compare)


def build_shrink() -> typer.Typer:
    """Build the group: a subcommand per method."""
    app = typer.Typer(
        name="shrink",
        help="Make a trained model smaller, and measure what that saves and costs.",
        rich_markup_mode=None,  # as the other commands
    )
    for method in _METHODS:
        app.command()(method)
    return app
