from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oomph.errors import UsageError
from oomph.patches import apply_loss_chunks


def loss_and_gradient(logits: Tensor, target: Tensor, chunks: int, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    with apply_loss_chunks(chunks):
        loss = F.cross_entropy(leaf, target, **options)
    (loss * 3).backward()
    assert leaf.grad is not None
    return loss.detach(), leaf.grad


def classes_of(*shape: int, classes: int = 7) -> Tensor:
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", ["", "weighted"])
@pytest.mark.parametrize("shape", [(10, 7), (1, 7, 11), (3, 7, 2, 4)])
def test_loss_and_gradient_are_those_of_torch(
    reduction: str, smoothing: float, weighted: str, shape: tuple[int, ...]
) -> None:
    logits, target = torch.randn(shape, dtype=torch.float64), classes_of(shape[0], *shape[2:])
    target.flatten()[::3] = 5
    weight = torch.rand(7, dtype=torch.float64) + 0.1 if weighted else None
    options = {"reduction": reduction, "label_smoothing": smoothing, "weight": weight, "ignore_index": 5}
    expected = loss_and_gradient(logits, target, 1, **options)
    for chunks in (2, 3, 100):
        torch.testing.assert_close(loss_and_gradient(logits, target, chunks, **options), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_of_ignored_rows_is_as_with_torch(smoothing: float) -> None:
    logits, target = torch.randn(4, 7), torch.full((4,), -100)
    for reduction in ("mean", "sum"):
        options = {"reduction": reduction, "label_smoothing": smoothing}
        expected = loss_and_gradient(logits, target, 1, **options)
        torch.testing.assert_close(loss_and_gradient(logits, target, 2, **options), expected, equal_nan=True)
        assert not expected[1].any()


def test_impossible_classes_of_ignored_rows_do_no_harm() -> None:
    logits, target = torch.randn(4, 7), torch.tensor([-100, 1, 2, 3])
    logits[0, 0] = -torch.inf
    torch.testing.assert_close(loss_and_gradient(logits, target, 2), loss_and_gradient(logits, target, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    logits, target = torch.randn(64, 500).to(dtype), classes_of(64, classes=500)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, gradient = loss_and_gradient(logits, target, 4)
    exact_loss, exact_gradient = loss_and_gradient(logits.float(), target, 1)
    assert (loss.dtype, gradient.dtype) == (torch.float32, dtype)
    torch.testing.assert_close(loss, exact_loss)
    torch.testing.assert_close(gradient.float(), exact_gradient, rtol=1e-2, atol=1e-7)


def test_small_float16_gradients_are_not_lost_before_the_loss_is_scaled() -> None:
    logits, target = torch.zeros(8, 50_000, dtype=torch.float16), classes_of(8)
    leaf = logits.clone().requires_grad_()
    with apply_loss_chunks(2):
        (F.cross_entropy(leaf, target).float() * 2**13).backward()
    assert leaf.grad is not None
    assert leaf.grad[0, -1].item() == pytest.approx(2**13 / 50_000 / 8, rel=1e-3)


def test_class_probabilities_single_rows_and_unreduced_losses_run_as_before() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    calls: list[tuple[Tensor, Tensor, dict[str, Any]]] = [
        (logits, torch.rand(4, 7), {}),
        (logits[0], torch.tensor(3), {}),
        (logits, classes_of(4), {"reduction": "none"}),
    ]
    for x, target, options in calls:
        expected = F.cross_entropy(x, target, **options)
        with apply_loss_chunks(2):
            loss = F.cross_entropy(x, target, **options)
        assert torch.equal(loss, expected)
        assert type(loss.grad_fn) is type(expected.grad_fn)


def test_mistakes_fail_as_before() -> None:
    with apply_loss_chunks(2), pytest.raises(ValueError, match="batch_size"):
        F.cross_entropy(torch.randn(4, 7), classes_of(5))
    with apply_loss_chunks(2), pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        F.cross_entropy(torch.randn(4, 7), torch.tensor([1, 2, 3, 9]))


def test_the_loss_module_uses_chunks_until_they_are_undone() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    expected = F.cross_entropy(logits, classes_of(4))
    patch = apply_loss_chunks(2)
    assert "Chunked" in type(nn.CrossEntropyLoss()(logits, classes_of(4)).grad_fn).__name__
    with torch.no_grad():
        assert torch.allclose(F.cross_entropy(logits, classes_of(4)), expected)
    patch.undo()
    assert type(F.cross_entropy(logits, classes_of(4)).grad_fn) is type(expected.grad_fn)


def test_backward_may_run_twice_but_the_gradient_has_none() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    with apply_loss_chunks(2):
        loss = F.cross_entropy(logits, classes_of(4))
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits, retain_graph=True)
    assert torch.equal(first, second)
    with pytest.raises(UsageError, match="can't be differentiated again; set loss_chunks to 1"):
        torch.autograd.grad(loss, logits, create_graph=True)
