"""The terminal of IPython, which shows text only."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CELLS = """%load_ext oomph
def fail(): raise MemoryError

fail()
%debug
import oomph; oomph.explain("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB")
1 / 0
%unload_ext oomph
exit
"""


@pytest.mark.medium
def test_ipython_in_a_terminal(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "IPython",
        "--simple-prompt",
        "--no-banner",
        "--quick",
        "--ipython-dir",
        str(tmp_path),
    ]
    finished = subprocess.run(command, input=CELLS, capture_output=True, text=True, check=True, timeout=120)
    text = re.sub(r"\x1b\[[\d;]*m", "", finished.stdout)
    assert "MemoryError" in text
    assert "oomph: The program could not allocate host memory." in text
    assert "oomph: There is nothing to debug" in text
    assert "Explanation(source='log'" in text
    assert "ZeroDivisionError" in text
    assert "<pre" not in text
