"""Runs a script in a folder with torchvision's operators declared: `python -m tests.integrations.run_script`."""

from __future__ import annotations

import os
import runpy
import sys

from . import conftest  # noqa: F401  it declares the operators


def main() -> None:
    script, folder = sys.argv[1:3]
    os.chdir(folder)
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
