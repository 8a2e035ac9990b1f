"""The optimizer, its parameter groups, and frozen layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ._hyperparameters import Hyperparameters
from ._schedule import accumulation

_ADAM_BETA2 = 0.999


def parameter_groups(model: nn.Module, hyp: Hyperparameters, batch: int) -> list[dict[str, Any]]:
    """Return the parameter groups: convolution weights with weight decay, biases, BatchNorm weights.

    Decayed weights come first, so that SGD allocates all the memory it needs before it writes. `set_lr` finds a group
    by its `name`. `batch` is the batch over all ranks.
    """
    biases: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    norms: list[nn.Parameter] = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                biases.append(parameter)
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001  their common base class
                norms.append(parameter)
            else:
                decayed.append(parameter)
    weight_decay = hyp.weight_decay * batch * accumulation(batch, hyp.nominal_batch) / hyp.nominal_batch
    return [
        {"params": decayed, "weight_decay": weight_decay, "name": "weights"},
        {"params": biases, "weight_decay": 0.0, "name": "biases"},
        {"params": norms, "weight_decay": 0.0, "name": "norms"},
    ]


def build_optimizer(
    model: nn.Module, hyp: Hyperparameters, batch: int, *, fused: bool | None = None
) -> torch.optim.Optimizer:
    """Build the optimizer over `parameter_groups`; `fused` is torch's option."""
    groups = parameter_groups(model, hyp, batch)
    if hyp.optimizer == "AdamW":
        return torch.optim.AdamW(groups, lr=hyp.lr0, betas=(hyp.momentum, _ADAM_BETA2), fused=fused)
    return torch.optim.SGD(groups, lr=hyp.lr0, momentum=hyp.momentum, nesterov=True, fused=fused)


def freeze(model: nn.Module, layers: int) -> int:
    """Freeze the first layers of a network (10 are YOLOv5's backbone), and return the number of frozen parameters."""
    count = 0
    for index, layer in enumerate(model.get_submodule("model").children()):
        for parameter in layer.parameters() if index < layers else ():
            parameter.requires_grad = False
            count += parameter.numel()
    return count
