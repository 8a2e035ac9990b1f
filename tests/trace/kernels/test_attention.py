from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oomph.job import Job
from oomph.settings import Settings
from oomph.trace import CudaDevice, Phase, trace_step
from oomph.trace.kernels._attention import AttentionBackend, AttentionCall, choose_backend

HOPPER, AMPERE, TURING = CudaDevice(), CudaDevice(capability=(8, 6)), CudaDevice(capability=(7, 5))
BLACKWELL = CudaDevice(capability=(10, 0))


def heads(dtype: torch.dtype, width: int = 64, count: int = 4, tokens: int = 128) -> Tensor:
    return torch.empty(2, count, tokens, width, dtype=dtype, device="meta")


def call(dtype: torch.dtype, width: int = 64, **options: Any) -> AttentionCall:
    q = heads(dtype, width)
    return AttentionCall(**{"q": q, "k": q, "v": q, **options})


@pytest.mark.parametrize(
    ("dtype", "width", "device", "backend"),
    [
        (torch.bfloat16, 64, HOPPER, AttentionBackend.CUDNN),
        (torch.bfloat16, 256, HOPPER, AttentionBackend.CUDNN),
        (torch.bfloat16, 192, BLACKWELL, AttentionBackend.FLASH),
        (torch.bfloat16, 12, HOPPER, AttentionBackend.FLASH),
        (torch.float32, 64, HOPPER, AttentionBackend.EFFICIENT),
        (torch.float16, 64, AMPERE, AttentionBackend.FLASH),
        (torch.float16, 64, TURING, AttentionBackend.EFFICIENT),
        (torch.bfloat16, 64, TURING, AttentionBackend.MATH),
        (torch.float32, 30, HOPPER, AttentionBackend.MATH),
    ],
)
def test_backend_is_the_one_that_torch_prefers(
    dtype: torch.dtype, width: int, device: CudaDevice, backend: AttentionBackend
) -> None:
    assert choose_backend(call(dtype, width), device) is backend


def test_dropout_does_not_exclude_cudnn() -> None:
    assert choose_backend(call(torch.float16, dropout=0.1), HOPPER) is AttentionBackend.CUDNN


def test_mask_excludes_flash() -> None:
    mask = torch.empty(2, 4, 128, 128, dtype=torch.float16, device="meta")
    assert choose_backend(call(torch.float16, mask=mask), AMPERE) is AttentionBackend.EFFICIENT


@pytest.mark.parametrize(
    ("dtype", "backend"), [(torch.float32, AttentionBackend.MATH), (torch.bfloat16, AttentionBackend.CUDNN)]
)
def test_heads_that_share_keys_exclude_the_efficient_kernel(dtype: torch.dtype, backend: AttentionBackend) -> None:
    shared = heads(dtype, count=2)
    assert choose_backend(call(dtype, k=shared, v=shared, grouped=True), HOPPER) is backend


def test_keys_that_are_broadcast_over_the_heads_exclude_all_fused_kernels() -> None:
    shared = heads(torch.bfloat16, count=1)
    assert choose_backend(call(torch.bfloat16, k=shared, v=shared), HOPPER) is AttentionBackend.MATH


def test_causal_flash_needs_as_many_queries_as_keys() -> None:
    keys = heads(torch.float16, tokens=64)
    assert choose_backend(call(torch.float16, k=keys, v=keys, causal=True), AMPERE) is AttentionBackend.EFFICIENT


def test_fused_kernels_need_adjacent_elements() -> None:
    transposed = heads(torch.float16, width=128, tokens=64).transpose(-2, -1)
    assert choose_backend(call(torch.float16, q=transposed), HOPPER) is AttentionBackend.MATH
    mask = torch.empty(128, 128, 4, dtype=torch.float16, device="meta").permute(2, 0, 1)[None]
    assert choose_backend(call(torch.float16, mask=mask), HOPPER) is AttentionBackend.MATH


def attention_storages(step: Any, **shared: Any) -> list[tuple[str, int]]:
    """Return op and size of each storage that a step on queries, keys and values of 2 x 4 x 64 x 32 allocates."""

    def batch(count: int, size: Any) -> Any:
        del size
        return tuple(torch.randn(count, heads, 64, 32) for heads in (4, shared.get("heads", 4), shared.get("heads", 4)))

    def sgd(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1)

    job = Job(model=lambda: nn.Linear(32, 32, bias=False), batch=batch, step=step, optimizer=sgd)
    trace = trace_step(job, Settings(batch=2, size=64, **shared.get("settings", {})), CudaDevice())
    return [(storage.op, storage.size) for storage in trace.storages if storage.phase is Phase.FORWARD]


def test_grouped_queries_in_fp32_save_the_scores_and_repeated_keys() -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        q, k, v = (model(x) for x in batch)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).sum()

    storages = attention_storages(step, heads=2)
    scores, repeated = 2 * 4 * 64 * 64 * 4, 2 * 4 * 64 * 32 * 4
    assert ("aten._safe_softmax.default", scores) in storages
    assert storages.count(("aten.clone.default", repeated)) >= 2  # keys and values for every head


def test_boolean_mask_is_converted_once() -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        q, k, v = (model(x) for x in batch)
        mask = torch.ones(2, 4, 64, 64, dtype=torch.bool)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum()

    sizes = [size for op, size in attention_storages(step) if size == 2 * 4 * 64 * 64 * 4]
    assert len(sizes) == 3  # one in each traced step


def recorded_mask(kind: str | None, dtype: torch.dtype, keys: int) -> Tensor | None:
    options: dict[str, Any] = {"dtype": dtype, "device": "meta"}
    if kind is None:
        return None
    if kind == "boolean":
        return torch.empty(2, 1, 64, keys, dtype=torch.bool, device="meta")
    if kind == "expanded":
        return torch.empty(2, 1, 1, keys, **options).expand(2, 8, 64, keys)
    if kind == "strided":
        return torch.empty(64, keys, 8, **options).permute(2, 0, 1)[None]
    return torch.empty(2, 8, 64, keys, **options).requires_grad_(kind == "learned")


@pytest.mark.medium
def test_backends_are_those_that_torch_chose_on_an_h200() -> None:
    """Compare with the recorded choices: dtypes, widths, shared heads, masks, dropout, causal, numbers of keys."""
    recorded = json.loads(gzip.decompress((Path(__file__).parent / "recorded/attention_h200.json.gz").read_bytes()))
    wrong = []
    for *case, chosen in recorded["choices"]:
        name, width, sharing, mask, dropout, causal, keys = case
        dtype = getattr(torch, name)
        k = heads(dtype, width, {"equal": 8, "grouped": 2, "broadcast": 1}[sharing], keys)
        q, additive = heads(dtype, width, 8, 64), recorded_mask(mask, dtype, keys)
        expected = AttentionCall(q, k, k, additive, dropout, causal, grouped=sharing == "grouped")
        if choose_backend(expected, HOPPER).value != chosen:
            wrong.append(case)
    assert not wrong
