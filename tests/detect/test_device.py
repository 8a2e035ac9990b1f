from __future__ import annotations

import pytest
import torch

from oomph.detect._device import configure_allocator, find_device
from oomph.errors import UsageError
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_find_device_rejects_a_missing_gpu() -> None:
    assert find_device(None) == find_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="there is no GPU 1; torch sees 0"):
        find_device("cuda:1")
