"""torchvision beside a CPU build of torch, which lacks its compiled operators: the benchmarks declare them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

if importlib.util.find_spec("torchvision") is not None:
    sys.path.append(str(BENCHMARKS))

    from zoo.torchvision_shim import declare_operators

    declare_operators()
