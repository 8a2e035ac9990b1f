from __future__ import annotations

import pytest
import torch
from torch import nn

import oomph
from oomph.patches import set_variant


def test_variant_is_set_and_undone() -> None:
    optimizer = torch.optim.AdamW(nn.Linear(2, 2).parameters())
    patch = set_variant(optimizer, "foreach")
    assert optimizer.param_groups[0]["foreach"] is True
    patch.undo()
    assert optimizer.param_groups[0]["foreach"] is None


def test_missing_variant_is_rejected() -> None:
    with pytest.raises(oomph.UsageError, match="RMSprop has no fused implementation"):
        set_variant(torch.optim.RMSprop(nn.Linear(2, 2).parameters()), "fused")


def test_given_changes_nothing() -> None:
    optimizer = torch.optim.RMSprop(nn.Linear(2, 2).parameters())
    set_variant(optimizer, "given").undo()
    assert optimizer.param_groups[0]["foreach"] is None
