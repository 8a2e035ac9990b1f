from __future__ import annotations

import torch
from torch import nn

from oomph.patches import apply_settings
from oomph.settings import Settings


def test_chunks_and_offloading_are_applied_and_undone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters())
    logits = torch.randn(4, 3, requires_grad=True)

    def loss_node() -> str:
        return type(nn.functional.cross_entropy(logits, torch.zeros(4).long()).grad_fn).__name__

    before = loss_node()
    settings = Settings(batch=4, loss_chunks=2, offload=("",), checkpointing=("0",), precision="amp-bf16")
    patch = apply_settings(model, [optimizer], settings)
    assert "Chunked" in loss_node()
    assert "forward" in vars(model)
    model(torch.randn(2, 4)).sum().backward()
    patch.undo()
    assert loss_node() == before
    assert "forward" not in vars(model)
