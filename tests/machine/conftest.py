"""Fixtures that read recorded machines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oomph.machine import Machine
from oomph.machine._machine import read_linux_machine
from oomph.machine.host import Source

from .recordings import NO_DRIVER, RECORDED, software, unpack


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[str], Source]:
    def source(name: str) -> Source:
        folder = tmp_path / name
        unpack(RECORDED / f"{name}.txt", folder)
        environ = folder / "environ.json"
        return Source.recorded(folder, json.loads(environ.read_text()) if environ.exists() else {})

    return source


@pytest.fixture
def machine(recorded: Callable[[str], Source]) -> Callable[[str], Machine]:
    def read(name: str) -> Machine:
        return read_linux_machine(recorded(name), NO_DRIVER, software(), "/data")

    return read


@pytest.fixture
def without_root() -> Iterator[None]:
    """Drop root's permission to read and write everything."""
    unprivileged = 65534
    if os.getuid() != 0:
        yield
        return
    os.setresuid(unprivileged, unprivileged, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
