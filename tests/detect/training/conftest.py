from __future__ import annotations

from pathlib import Path

import pytest

from oomph.detect import DemoSize, write_demo_dataset


@pytest.fixture(scope="session")
def demo_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data.yaml of a demo dataset with 24 training and 8 validation images."""
    return write_demo_dataset(tmp_path_factory.mktemp("demo"), DemoSize(train=24, val=8))
