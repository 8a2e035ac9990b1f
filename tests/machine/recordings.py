"""Recorded machines: one text file each, laid out as a tree of real files for the readers."""

from __future__ import annotations

import re
from pathlib import Path

from oomph.machine._fact import Fact
from oomph.machine._software import Software

RECORDED = Path(__file__).parent / "recorded"
NO_DRIVER = {"state": "no driver", "why": "the NVIDIA driver is not installed"}


def lay_out(recording: Path, folder: Path) -> None:
    """Write the files and links of a recording below a folder."""
    for section in re.split(r"^=== ", recording.read_text(), flags=re.MULTILINE)[1:]:
        head, _, text = section.partition("\n")
        path, _, target = head.partition(" -> ")
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if target:
            file.symlink_to(target)
        else:
            file.write_text(text)


def software(**changes: Fact[str]) -> Software:
    """A torch that is in order, on a machine without a GPU."""
    values = {
        "torch": Fact("2.13.0+cpu", "torch/version.py"),
        "torch_cuda": Fact("none", "torch/version.py"),
        "torchvision": Fact("0.28.0+cpu", "torchvision/version.py"),
        "torchvision_wants": Fact("2.13.0", "metadata"),
        **changes,
    }
    return Software(python="3.11.7", torch_libraries=Fact(468_243_689, "torch/lib"), trial=None, **values)
