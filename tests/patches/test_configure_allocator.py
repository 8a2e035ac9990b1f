from __future__ import annotations

import pytest
import torch

from oomph.patches import configure_allocator
from oomph.settings import parse_allocator


def test_expandable_segments_are_enabled_unless_the_user_configured_the_allocator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("sys.platform", "linux")
    gpu = torch.device("cuda", 0)
    assert configure_allocator(torch.device("cpu")) == "default"
    assert configure_allocator(gpu) == "expandable"
    assert parse_allocator(configure_allocator(gpu)).expandable  # the second call reads the environment
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:128")
    assert configure_allocator(gpu) == "max_split_size_mb:128"
