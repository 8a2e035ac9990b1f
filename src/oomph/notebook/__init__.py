"""The IPython extension, `%load_ext oomph`: memory after each cell, and memory back after an out-of-memory error.

Imports no torch: a notebook without torch stays one.
"""

from ._extension import load_ipython_extension, unload_ipython_extension

__all__ = ["load_ipython_extension", "unload_ipython_extension"]
