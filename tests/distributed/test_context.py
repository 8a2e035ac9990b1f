from __future__ import annotations

import pytest
import torch

import oomph
from oomph.distributed import DistContext, init_distributed


def test_a_batch_must_be_a_multiple_of_the_world_size() -> None:
    dist = DistContext(0, 2)
    assert dist.per_rank_batch(8) == 4
    assert dist.per_rank_batch(-1) == -1
    with pytest.raises(oomph.UsageError, match="a batch of 7 can't be divided evenly among 2 ranks"):
        dist.per_rank_batch(7)


def test_each_rank_uses_the_gpu_of_its_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = DistContext(1, 2, 1, 2)
    assert DistContext().device_name("cuda:1") == "cuda:1"
    with pytest.raises(oomph.UsageError, match="requests one GPU"):
        dist.device_name("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert dist.device_name(None) == "cuda:1"
    assert dist.device_name("cpu") == "cpu"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(oomph.UsageError, match="2 ranks on this machine but only 1 GPUs"):
        dist.device_name(None)


def test_without_torchrun_there_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with init_distributed(None) as dist:
        assert dist == DistContext()
        assert (dist.broadcast(lambda: 3), dist.all_reduce_sum([1, 2]), dist.gather("a")) == (3, [1, 2], ["a"])


def test_incomplete_variables_of_torchrun_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(oomph.UsageError, match="LOCAL_RANK"), init_distributed(None):
        pass
