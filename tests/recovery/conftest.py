from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import torch

from oomph.recovery import _wholeness


@pytest.fixture(autouse=True)
def quick_and_quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """One thread, no old objects for the collector to look at, and no thousands of warnings in a report."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    with caplog.at_level(logging.ERROR, logger="oomph"):
        yield
    gc.unfreeze()
    torch.set_num_threads(threads)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers' tensors are taken for those of a GPU."""
    monkeypatch.setattr(_wholeness, "_is_on_gpu", lambda _: True)
    monkeypatch.setattr(_wholeness, "is_kept", lambda: True)
