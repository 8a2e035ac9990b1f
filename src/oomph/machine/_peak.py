"""The most RAM that this process has held."""

from __future__ import annotations

import sys

import psutil

from ..units import KIB


def peak_rss_bytes() -> int:
    """Bytes, since the process began; 0 where the system doesn't say.

    Linux tells it twice. What getrusage says has the peak of the process that started this one in it.
    """
    if sys.platform == "win32":
        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123  one look, often
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * KIB
    except OSError:
        pass
    import resource  # noqa: PLC0415  not on Windows

    unit = 1 if sys.platform == "darwin" else KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
