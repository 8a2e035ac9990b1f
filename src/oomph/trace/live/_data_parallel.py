"""DistributedDataParallel of a program that is traced as one rank."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ...units import MIB
from .._ranks import BUCKET, bucket_members
from .._trace import StorageKind
from ._cuda_module import replace_attribute
from ._recorder import LiveRecorder


def install_data_parallel(recorder: LiveRecorder, patches: ExitStack) -> None:
    """Let DistributedDataParallel keep its buckets on the device, and leave its communication out."""

    def init(model: Any, module: nn.Module, *_: Any, **options: Any) -> None:
        nn.Module.__init__(model)
        model.module, model.require_backward_grad_sync = module, True
        model.device_ids, model.static_graph = options.get("device_ids"), options.get("static_graph", False)
        is_view = options.get("gradient_as_bucket_view", False)  # then the gradients are in the buckets
        megabytes = options.get("bucket_cap_mb")
        capacity = int(megabytes * MIB) if megabytes else BUCKET
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        groups = [] if is_view else bucket_members(trained, capacity)
        model.buckets = [_bucket(recorder, members) for members in groups]

    def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
        return model.module(*args, **kwargs)

    replace_attribute(patches, DistributedDataParallel, "__init__", init)
    replace_attribute(patches, DistributedDataParallel, "forward", forward)
    replace_attribute(patches, DistributedDataParallel, "register_comm_hook", lambda *_, **__: None)


def _bucket(recorder: LiveRecorder, parameters: list[Tensor]) -> Tensor:
    with recorder.creating():
        bucket = torch.empty(sum(parameter.numel() for parameter in parameters), dtype=parameters[0].dtype)
    recorder.label(bucket, StorageKind.GRADIENT, "buckets of DistributedDataParallel")
    return bucket
