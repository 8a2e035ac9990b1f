from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest
from torch import nn


@pytest.fixture
def foreign_module() -> Iterator[type[nn.Module]]:
    """A class of the module `models.yolo`, which only exists during the test."""
    package, module = types.ModuleType("models"), types.ModuleType("models.yolo")

    class Model(nn.Module):
        pass

    Model.__module__, Model.__qualname__ = "models.yolo", "Model"
    module.Model = Model  # type: ignore[attr-defined]
    sys.modules.update({"models": package, "models.yolo": module})
    yield Model
    sys.modules.pop("models", None)
    sys.modules.pop("models.yolo", None)
