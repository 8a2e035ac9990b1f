"""DistributedDataParallel of a program that is traced as one rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from .._trace import StorageKind
from ._cuda_module import replace_attribute
from ._recorder import LiveRecorder

_MIB = 2**20
_FIRST_BUCKET = 1 * _MIB
_DEFAULT_BUCKET = 25.0  # MiB


def install_data_parallel(recorder: LiveRecorder, patches: ExitStack) -> None:
    """Let DistributedDataParallel keep its buckets on the device, and leave its communication out."""

    def init(model: Any, module: nn.Module, *_: Any, **options: Any) -> None:
        nn.Module.__init__(model)
        model.module, model.require_backward_grad_sync = module, True
        model.device_ids, model.static_graph = options.get("device_ids"), options.get("static_graph", False)
        is_view = options.get("gradient_as_bucket_view", False)  # then the gradients are in the buckets
        capacity = int((options.get("bucket_cap_mb") or _DEFAULT_BUCKET) * _MIB)
        model.buckets = [] if is_view else [_bucket(recorder, params) for params in _buckets(module, capacity)]

    def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
        return model.module(*args, **kwargs)

    replace_attribute(patches, DistributedDataParallel, "__init__", init)
    replace_attribute(patches, DistributedDataParallel, "forward", forward)
    replace_attribute(patches, DistributedDataParallel, "register_comm_hook", lambda *_, **__: None)


def _buckets(module: nn.Module, capacity: int) -> Iterator[list[Tensor]]:
    """Yield the parameters of each bucket: those with gradients, last first, by dtype."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    limit = min(_FIRST_BUCKET, capacity)
    for parameter in reversed([parameter for parameter in module.parameters() if parameter.requires_grad]):
        group = groups.setdefault(parameter.dtype, [])
        group.append(parameter)
        if sum(item.nbytes for item in group) >= limit:
            yield groups.pop(parameter.dtype)
            limit = capacity
    yield from groups.values()


def _bucket(recorder: LiveRecorder, parameters: list[Tensor]) -> Tensor:
    with recorder.creating():
        bucket = torch.empty(sum(parameter.numel() for parameter in parameters), dtype=parameters[0].dtype)
    recorder.label(bucket, StorageKind.GRADIENT, "buckets of DistributedDataParallel")
    return bucket
