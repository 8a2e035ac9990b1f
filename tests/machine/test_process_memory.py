from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from oomph.machine import peak_rss_bytes
from oomph.units import MIB


@pytest.mark.skipif(sys.platform != "linux", reason="the other systems tell it once")
def test_the_peak_is_this_process_s_own() -> None:
    held = np.ones(300 * MIB, np.uint8)
    assert peak_rss_bytes() > 300 * MIB
    code = """
from oomph.machine import peak_rss_bytes
small = peak_rss_bytes()
data = bytearray(64 << 20)
print(small, peak_rss_bytes() - small)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    small, grown = map(int, done.stdout.split())
    assert small < 200 * MIB < held.nbytes, "what its parent held doesn't count"
    assert grown >= 60 * MIB
