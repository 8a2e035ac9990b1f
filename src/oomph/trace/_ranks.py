"""One of several ranks in a trace: shards and gathered parameters of FSDP2, buckets of DDP.

FSDP2 is torch's own `fully_shard`, in torch's `fake` process group, whose collectives do nothing. DDP's reducer reads
memory, which fake tensors don't have, so only its buckets are added.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import UsageError
from ..patches import blocks
from ..settings import Settings
from ..units import MIB
from ._allocation_recorder import AllocationRecorder
from ._trace import StorageKind

FIRST_BUCKET, BUCKET = 1 * MIB, 25 * MIB  # DDP's own defaults

SHARDED = (
    "weights are sharded before they are moved to the GPU, communication takes no time, and NCCL's own memory is left "
    "out"
)
REPLICATED = "DDP has its default buckets, communication takes no time, and NCCL's own memory is left out"


@contextmanager
def fake_ranks(settings: Settings) -> Iterator[Any]:
    """Be the first of several ranks, and yield their mesh; None for a single process.

    Raises:
        UsageError: this process belongs to a process group already.
    """
    if settings.parallel == "none":
        yield None
        return
    if not dist.is_available():
        raise UsageError("this torch has no torch.distributed", "install one that has, or predict a single rank")
    if dist.is_initialized():
        raise UsageError(
            f"{settings.ranks} ranks can't be traced in a process group", "predict before init_process_group"
        )
    # The module registers the backend, in every torch that oomph supports.
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415  imports take a second
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    excepthook = sys.excepthook  # which torch replaces by one that names the rank
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=settings.ranks)
    try:
        yield init_device_mesh("cpu", (settings.ranks,))
    finally:
        dist.destroy_process_group()
        sys.excepthook = excepthook


def shard_model(model: nn.Module, mesh: Any) -> None:
    """Shard the repeated blocks and the rest of a model, unless the Job has sharded it already."""
    from torch.distributed.fsdp import FSDPModule, fully_shard  # noqa: PLC0415

    if any(isinstance(module, FSDPModule) for module in model.modules()):
        return
    for path in blocks(model):
        fully_shard(model.get_submodule(path), mesh=mesh)
    fully_shard(model, mesh=mesh)


@contextmanager
def record_shards(recorder: AllocationRecorder) -> Iterator[None]:
    """Record operations on shards, and the storages of gathered parameters, which FSDP2 empties and fills again."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415
    from torch.distributed.tensor._sharding_prop import ShardingPropagator  # noqa: PLC0415

    storage_type: Any = torch.UntypedStorage
    propagator: Any = ShardingPropagator
    resize_storage, propagate = storage_type.resize_, propagator._propagate_tensor_meta_non_cached

    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize_storage(storage, size)
        recorder.resize(storage, size, StorageKind.PARAMETER)
        return result

    def propagate_unrecorded(*args: Any) -> Any:
        with recorder.paused():  # it runs the operation on fake tensors of the whole shape
            return propagate(*args)

    recorder.sharded_type, storage_type.resize_ = DTensor, resize
    propagator._propagate_tensor_meta_non_cached = propagate_unrecorded
    try:
        yield
    finally:
        propagator._propagate_tensor_meta_non_cached = propagate
        del storage_type.resize_  # the original belongs to the base class
        recorder.sharded_type = None


def add_buckets(model: nn.Module, recorder: AllocationRecorder) -> list[Tensor]:
    """Allocate the buckets in which DDP reduces the gradients."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    buckets = []
    for members in bucket_members(parameters, BUCKET):
        size = sum(parameter.numel() for parameter in members)
        buckets.append(torch.empty(size, dtype=members[0].dtype))
        recorder.label(buckets[-1], StorageKind.GRADIENT, "buckets of DistributedDataParallel")
    return buckets


def bucket_members(parameters: Sequence[Tensor], capacity: int) -> Iterator[list[Tensor]]:
    """Yield the parameters of each bucket of DDP, as torch assigns them: the last ones first, by dtype and device."""
    if not parameters:
        return
    limits = [min(FIRST_BUCKET, capacity), capacity]
    distributed: Any = dist  # typed in parts
    indices, _ = distributed._compute_bucket_assignment_by_size(list(reversed(parameters)), limits)
    yield from ([parameters[-1 - index] for index in bucket] for bucket in indices)
