"""Votes and lost ranks, in a group of one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from oomph.distributed import ControlGroup, NoControlGroup, _watchdog, is_rank_error
from oomph.errors import OomphError, RankLost, UsageError


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlGroup]:
    monkeypatch.setattr(_watchdog, "_BEAT_SECONDS", 0.02)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    control = ControlGroup(None, timeout=15.0)
    yield control
    control.close()
    dist.destroy_process_group()


CLOSED = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3234"


def test_only_errors_about_ranks_mean_that_another_rank_is_gone() -> None:
    assert is_rank_error(RuntimeError(CLOSED))
    assert is_rank_error(dist.DistBackendError("NCCL communicator is gone"))
    for text in ("copy_() between dense and sparse", "DefaultCPUAllocator: can't allocate memory: 8", "label is 7"):
        assert not is_rank_error(RuntimeError(text))
    assert not is_rank_error(dist.DistBackendError("Cuda failure 2 'out of memory'"))
    assert not is_rank_error(KeyboardInterrupt())


def test_a_single_process_needs_no_group() -> None:
    control = NoControlGroup()
    assert (control.is_distributed, control.is_first) == (False, True)
    assert control.max_over_ranks([3, 1]) == [3, 1]
    with control.busy():
        assert control.as_rank_lost(RuntimeError(CLOSED)) is None
    control.announce_failure("ValueError: the label is 7")
    control.close()


def test_a_group_votes_by_the_largest_values(control: ControlGroup) -> None:
    assert (control.is_distributed, control.is_first) == (True, True)
    assert control.max_over_ranks([3, 0, 1 << 40]) == [3, 0, 1 << 40]


def test_a_rank_is_busy_during_a_step(control: ControlGroup) -> None:
    was_busy = []

    def step() -> None:
        with control.busy():
            was_busy.append(control._watchdog.busy)
            raise ValueError("the label is 7")

    with pytest.raises(ValueError, match="the label is 7"):
        step()
    assert was_busy == [True]
    assert not control._watchdog.busy


def test_errors_of_collectives_become_rank_lost(control: ControlGroup) -> None:
    with pytest.raises(RankLost, match=r"another rank is gone.*check the output of that rank"), control.collective():
        raise RuntimeError(CLOSED)
    with pytest.raises(RuntimeError, match="the label is 7"), control.collective():
        raise RuntimeError("the label is 7")


def test_errors_of_oomph_stay_what_they_are(control: ControlGroup) -> None:
    error: OomphError = UsageError("the batch has no samples", "skip empty batches")
    assert control.as_rank_lost(error) is None
    lost = control.as_rank_lost(RuntimeError(CLOSED + "\nmore"))
    assert isinstance(lost, RankLost)
    assert "\n" not in str(lost)
