from __future__ import annotations

import pytest
import torch
from torch import nn

import oomph
from oomph.patches import set_variant


def test_a_variant_is_put_on_and_taken_off() -> None:
    optimizer = torch.optim.AdamW(nn.Linear(2, 2).parameters())
    change = set_variant(optimizer, "foreach")
    assert optimizer.param_groups[0]["foreach"] is True
    change.undo()
    assert optimizer.param_groups[0]["foreach"] is None


def test_an_optimizer_without_that_variant_says_so() -> None:
    with pytest.raises(oomph.UsageError, match="RMSprop has no fused variant"):
        set_variant(torch.optim.RMSprop(nn.Linear(2, 2).parameters()), "fused")


def test_given_changes_nothing() -> None:
    optimizer = torch.optim.RMSprop(nn.Linear(2, 2).parameters())
    set_variant(optimizer, "given").undo()
    assert optimizer.param_groups[0]["foreach"] is None
