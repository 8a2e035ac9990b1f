"""Worker processes: thin, and started whatever the program that starts them looks like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from PIL import Image


def test_a_script_without_a_main_guard_can_use_workers(tmp_path: Path) -> None:
    """Thin workers import neither the script nor torch."""
    Image.new("RGB", (64, 48)).save(tmp_path / "one.png")
    script = tmp_path / "script.py"
    script.write_text(
        "import psutil, torch\n"
        "from oomph.data import Loader\n"
        "print('once')\n"
        f"loader = Loader([{str(tmp_path / 'one.png')!r}] * 4, size=32, batch=2, workers=1)\n"
        "batches = iter(loader)\n"
        "print(next(batches).images.shape[0])\n"
        "maps = [one.path for one in psutil.Process().children()[0].memory_maps()]\n"
        "print(any('libtorch' in path for path in maps))\n"
        "loader.close()\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["once", "2", "False"]
