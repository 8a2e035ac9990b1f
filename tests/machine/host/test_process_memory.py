from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from oomph.machine import peak_rss_bytes, process_rss_bytes, pss_bytes, rss_bytes
from oomph.units import MIB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_rss_of_this_process_is_read_in_two_ways() -> None:
    rss, pss = process_rss_bytes(os.getpid()), pss_bytes((os.getpid(),))
    assert rss == pytest.approx(rss_bytes(), rel=0.1)
    assert rss is not None
    assert pss is None or 0 < pss <= 1.1 * rss


def test_rss_of_a_missing_process_is_none() -> None:
    assert process_rss_bytes(2**30) is None
    assert pss_bytes((2**30,)) is None


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux distinguishes the peaks")
def test_peak_excludes_the_parent_process() -> None:
    array = np.ones(300 * MIB, np.uint8)
    assert peak_rss_bytes() > 300 * MIB
    code = """
from oomph.machine import peak_rss_bytes
small = peak_rss_bytes()
data = bytearray(64 << 20)
print(small, peak_rss_bytes() - small)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    small, grown = map(int, process.stdout.split())
    assert small < 200 * MIB < array.nbytes, "includes the memory of the parent process"
    assert grown >= 60 * MIB
