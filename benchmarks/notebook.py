"""Measure what an out-of-memory error in a notebook keeps on the GPU, without and with `%load_ext oomph`.

    python benchmarks/notebook.py            # needs a GPU and IPython
    python benchmarks/notebook.py --gib 8

A function allocates blocks until the GPU is full to `--gib`, which is torch's limit for the process. Cells run in
IPython's shell in this process, as a kernel runs them. One line of JSON for each case, in bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch

try:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config
except ImportError:
    sys.exit("this benchmark needs IPython: pip install ipython")

GIB = 2**30
CELLS = """
import torch

def train():
    activations = []
    while True:
        activations.append(torch.ones(2**26, device="cuda"))  # 256 MiB
"""


def main() -> None:
    """Run both cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--gib", type=float, default=4, help="memory that torch may use")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, arguments.gib * GIB / total))
    for with_extension in (False, True):
        result = run_out_of_memory(with_extension=with_extension)
        sys.stdout.write(
            json.dumps({"gpu": torch.cuda.get_device_name(), "limit": arguments.gib * GIB, **result}) + "\n"
        )


def run_out_of_memory(*, with_extension: bool) -> dict[str, Any]:
    """Fill the GPU in a cell, and return what is in use before and after it, and whether the next cell can run."""
    shell = new_shell()
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        if with_extension:
            shell.run_line_magic("load_ext", "oomph")
        shell.run_cell(CELLS)
        shell.run_cell("kept = torch.ones(2**26, device='cuda')")
        before = torch.cuda.memory_allocated()
        error = shell.run_cell("train()").error_in_exec
        name = type(error).__name__
        del error
        after, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        is_usable = shell.run_cell("again = torch.ones(2**28, device='cuda')").success  # 1 GiB
        shell.run_cell("del kept, again")
    forget(shell)
    return {
        "extension": with_extension,
        "error": name,
        "allocated_before": before,
        "allocated_after": after,
        "reserved_after": reserved,
        "next_cell_gets_1_gib": is_usable,
        "message": [line for line in text.getvalue().splitlines() if line.startswith("oomph:")],
    }


def new_shell() -> Any:
    """Return a shell without history."""
    config = Config()
    config.HistoryManager.enabled = False
    shell_class: Any = InteractiveShell
    return shell_class(config=config)


def forget(shell: Any) -> None:
    """Free everything that a case left, so that the next one starts with an empty GPU."""
    shell.reset(new_session=False)
    shell.InteractiveTB.tb = shell.last_execution_result = None
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
