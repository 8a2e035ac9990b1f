from __future__ import annotations

import pytest
import torch

from oomph.detect._device import find_device
from oomph.errors import UsageError


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_find_device_rejects_a_missing_gpu() -> None:
    assert find_device(None) == find_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="there is no GPU 1; torch sees 0"):
        find_device("cuda:1")
