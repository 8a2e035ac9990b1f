"""Recorded machines: one text file each, which is unpacked to real files for the readers."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from oomph.machine import Fact, Machine, NvidiaDriver
from oomph.machine._software import Software

RECORDED = Path(__file__).parent / "recorded"
NO_DRIVER = {"state": "no driver", "reason": "the NVIDIA driver is not installed"}


def unpack(recording: Path, folder: Path) -> None:
    """Write the files and links of a recording to a folder."""
    for section in re.split(r"^=== ", recording.read_text(), flags=re.MULTILINE)[1:]:
        head, _, text = section.partition("\n")
        path, _, target = head.partition(" -> ")
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if target:
            file.symlink_to(target)
        else:
            file.write_text(text)


def software(**changes: Fact[Any]) -> Software:
    """Return a consistent CPU build of torch and torchvision."""
    values: dict[str, Any] = {
        "torch": Fact("2.13.0+cpu", "torch/version.py"),
        "torch_cuda": Fact("none", "torch/version.py"),
        "torch_library_bytes": Fact(468_243_689, "torch/lib"),
        "torchvision": Fact("0.28.0+cpu", "torchvision/version.py"),
        "torchvision_requires": Fact("2.13.0", "metadata"),
        **changes,
    }
    return Software(python="3.11.7", import_check=None, **values)


H200: dict[str, Any] = json.loads((RECORDED / "nvml_h200.json").read_text())


def h200(**device: Any) -> dict[str, Any]:
    """Return the NVML data of an H200 with some fields of its GPU changed."""
    data = copy.deepcopy(H200)
    data["devices"][0].update(device)
    return data


def on_gpu(machine: Machine, driver: NvidiaDriver, **fields: Fact[Any]) -> Machine:
    """Return a machine with another driver and a CUDA build of torch."""
    cuda: dict[str, Fact[Any]] = {
        "torch": Fact("2.11.0+cu130", "v"),
        "torch_cuda": Fact("13.0", "v"),
        "torchvision": Fact("0.26.0+cu130", "v"),
        "torchvision_requires": Fact("2.11.0", "v"),
    }
    return dataclasses.replace(machine, driver=driver, software=software(**{**cuda, **fields}))
