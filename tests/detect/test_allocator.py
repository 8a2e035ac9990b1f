from __future__ import annotations

import pytest
import torch

from oomph.detect._device import settle_allocator
from oomph.settings import parse_allocator


def test_expandable_segments_are_switched_on_unless_the_user_has_a_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("sys.platform", "linux")
    gpu = torch.device("cuda", 0)
    assert settle_allocator(torch.device("cpu")) == "default"
    assert settle_allocator(gpu) == "expandable"
    assert parse_allocator(settle_allocator(gpu)).expandable  # asked again, in the words of the environment
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:128")
    assert settle_allocator(gpu) == "max_split_size_mb:128"
