"""Recorded machines: one text file each, laid out as a tree of real files for the readers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from oomph.machine._fact import Fact
from oomph.machine._machine import Machine, machine_from
from oomph.machine._software import Software
from oomph.machine._source import Source

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


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[str], Source]:
    def source(name: str) -> Source:
        folder = tmp_path / name
        lay_out(RECORDED / f"{name}.txt", folder)
        environ = folder / "environ.json"
        return Source.recorded(folder, json.loads(environ.read_text()) if environ.exists() else {})

    return source


@pytest.fixture
def machine(recorded: Callable[[str], Source]) -> Callable[[str], Machine]:
    def read(name: str) -> Machine:
        return machine_from(recorded(name), NO_DRIVER, software(), "/data")

    return read
