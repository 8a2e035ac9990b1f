from __future__ import annotations

import pytest

from oomph.lint import lint_text


@pytest.mark.parametrize(
    ("call", "model"),
    [
        ("model", "model"),
        ("clip.model.encode_image", "clip.model"),
        ("model.forward_features", "model"),
        ("model.backbone", "model.backbone"),
    ],
)
def test_advice_switches_the_model_and_not_its_method(call: str, model: str) -> None:
    text = f"""import torch

def validate(model, clip, val_loader):
    hits = 0
    with torch.no_grad():
        for image, label in val_loader:
            hits += ({call}(image).argmax(1) == label).sum().item()
    return hits
"""
    (diagnostic,) = lint_text(text, "validate.py").diagnostics
    assert diagnostic.rule == "validation-without-eval"
    assert f"call {model}.eval() before and {model}.train() after it" in diagnostic.problem.message
