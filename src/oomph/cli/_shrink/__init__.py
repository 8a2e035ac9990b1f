"""`oomph shrink METHOD`: one file per method."""

from ._app import build_shrink

__all__ = ["build_shrink"]
