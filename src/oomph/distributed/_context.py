"""The ranks of a distributed run, and their communication outside of the guard's steps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ..errors import OomphError, RankLost, UsageError
from ..patches import configure_allocator
from ._collectives import NO_TIMEOUT, rank_lost_errors

T = TypeVar("T")


@dataclass(frozen=True)
class DistContext:
    """Rank and world size of this process.

    Attributes:
        rank: rank of this process.
        world_size: number of ranks.
        local_rank: rank on this machine, which is also the number of its GPU.
        local_world_size: number of ranks on this machine.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def is_main(self) -> bool:
        """True for rank 0, which prints and writes."""
        return self.rank == 0

    @property
    def is_distributed(self) -> bool:
        """True if there are several ranks."""
        return self.world_size > 1

    def per_rank_batch(self, batch: int) -> int:
        """Return the images of a batch that each rank gets; -1 (auto) stays -1.

        Raises:
            UsageError: the batch isn't a multiple of the number of ranks.
        """
        if batch > 0 and batch % self.world_size:
            why = f"a batch of {batch} can't be divided evenly among {self.world_size} ranks"
            raise UsageError(why, f"use a multiple of {self.world_size}")
        return batch // self.world_size if batch > 0 else batch

    def device_name(self, requested: str | None) -> str | None:
        """Return the device of this rank: the GPU of its local rank, or the CPU.

        Raises:
            UsageError: a single GPU was requested, or there are fewer GPUs than ranks.
        """
        if not self.is_distributed:
            return requested
        if requested not in {None, "cpu", "cuda"}:
            raise UsageError(
                f"--device requests one GPU ({requested}) for {self.world_size} ranks",
                "remove it and select GPUs with CUDA_VISIBLE_DEVICES: each rank uses the GPU of its local rank",
            )
        if requested == "cpu" or not torch.cuda.is_available():
            return "cpu"
        if self.local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"there are {self.local_world_size} ranks on this machine but only {torch.cuda.device_count()} GPUs",
                "start one rank per GPU, or train with --device cpu",
            )
        return f"cuda:{self.local_rank}"

    def broadcast(self, work: Callable[[], T]) -> T:
        """Call a function on rank 0 and return its result on all ranks.

        Raises:
            RankLost: it failed on rank 0, where its own error is raised.
        """
        results: list[T] = self.all_gather(work if self.is_main else _no_result)
        return results[0]

    def all_gather(self, work: Callable[[], T]) -> list[T]:
        """Call a function on every rank and return all results on all ranks.

        Raises:
            RankLost: a rank failed or is gone; a failed rank raises its own error.
        """
        if not self.is_distributed:
            return [work()]
        result: Any = None
        error: OomphError | None = None
        try:
            result = work()
        except OomphError as raised:
            error = raised
        gathered: list[Any] = [None] * self.world_size
        message = (result, None) if error is None else (None, (error.why, error.fix))
        with rank_lost_errors():
            dist.all_gather_object(gathered, message)
        if error is not None:
            raise error
        for rank, (_, failure) in enumerate(gathered):
            if failure is not None:
                raise RankLost(f"rank {rank} failed: {failure[0]}", failure[1])
        return [value for value, _ in gathered]

    def gather(self, value: T) -> list[T] | None:
        """Return the values of all ranks on rank 0, None on other ranks.

        Raises:
            RankLost: a rank is gone.
        """
        if not self.is_distributed:
            return [value]
        gathered: list[Any] | None = [None] * self.world_size if self.is_main else None
        with rank_lost_errors():
            dist.gather_object(value, gathered, dst=0)
        return gathered

    def all_reduce_sum(self, counts: Sequence[int]) -> list[int]:
        """Return counts summed over the ranks.

        Raises:
            RankLost: a rank is gone.
        """
        if not self.is_distributed:
            return list(counts)
        totals = torch.tensor(counts, dtype=torch.int64)
        with rank_lost_errors():
            dist.all_reduce(totals)
        return [int(value) for value in totals]


SINGLE = DistContext()


def _no_result() -> Any:
    return None


@contextlib.contextmanager
def init_distributed(device: str | None) -> Iterator[DistContext]:
    """Join the ranks that torchrun started; without torchrun there is a single one.

    Args:
        device: the requested device: "cpu", or None for the GPU of each rank if there are any.

    Raises:
        UsageError: there are fewer GPUs than ranks, or a single GPU was requested.
    """
    context = _context_from_environment(os.environ)
    if not context.is_distributed:
        yield context
        return
    name = context.device_name(device)
    if name != "cpu":
        configure_allocator(torch.device("cuda"))  # set_device starts CUDA, after which it is too late
        torch.cuda.set_device(name)
    # Objects and counts always use gloo, so that they never wait for a GPU.
    dist.init_process_group("gloo" if name == "cpu" else "cpu:gloo,cuda:nccl", timeout=NO_TIMEOUT)
    try:
        yield context
    finally:
        dist.destroy_process_group()


def _context_from_environment(environment: Mapping[str, str]) -> DistContext:
    """Read the variables that torchrun sets.

    Raises:
        UsageError: some of them are missing.
    """
    if int(environment.get("WORLD_SIZE", "1")) <= 1 or "RANK" not in environment:
        return SINGLE
    try:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        return DistContext(*(int(environment[name]) for name in names))
    except KeyError as error:
        raise UsageError(f"RANK is set but {error} is not", "start the ranks with torchrun") from None
