"""Cells of a sweep on a Ray cluster, which the extra `oomph[ray]` installs."""

from ._queue import run_cells_on_ray

__all__ = ["run_cells_on_ray"]
