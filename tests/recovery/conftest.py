from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def quick_and_quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Run with one thread, a small heap for the garbage collector, and without thousands of logged warnings."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    with caplog.at_level(logging.ERROR, logger="oomph"):
        yield
    gc.unfreeze()
    torch.set_num_threads(threads)
