from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import torch
import torch._dynamo  # the first optimizer step imports it, which must happen before the heap is frozen


@pytest.fixture(scope="package", autouse=True)
def unfreeze_heap() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def freeze_heap() -> None:
    """Hide torch from the garbage collector: a retry runs it, and a full collection takes 0.2 s otherwise."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread_without_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Run with one thread and without the thousands of warnings that injected errors cause."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with caplog.at_level(logging.ERROR, logger="oomph"):
        yield
    torch.set_num_threads(threads)
