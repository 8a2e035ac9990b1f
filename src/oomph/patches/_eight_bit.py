"""Optimizer states in 8 bits, by torchao: about 2 bytes for each parameter instead of 8."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer

from ..errors import UsageError
from ._patch import Patch

_BLOCK_SIZE = 256  # values that share a scale; torchao's default
_FUSED_SCALING = "_step_supports_amp_scaling"  # with it, a GradScaler leaves unscaling to a fused kernel


def use_eight_bit_states(optimizer: Optimizer) -> Patch:
    """Let an Adam or AdamW keep its states in 8 bits, with the same groups and hyperparameters.

    It becomes an instance of torchao's class, so that references to it stay valid. Its learning rates become tensors,
    as torchao requires: schedulers of torch write to them, other code has to use `group["lr"].fill_()`.

    Raises:
        UsageError: torchao is missing, or this optimizer can't be converted.
    """
    _check(optimizer)
    target = _class_for(optimizer)
    attributes, optimizer_class = dict(vars(optimizer)), type(optimizer)
    rates = [group["lr"] for group in optimizer.param_groups]
    vars(optimizer).pop(_FUSED_SCALING, None)
    optimizer.__class__ = target
    changes = {"block_size": _BLOCK_SIZE, "bf16_stochastic_round": False, "is_adamw": target.__name__ == "AdamW8bit"}
    vars(optimizer).update(changes)
    optimizer._patch_step_function()
    for group in optimizer.param_groups:
        group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32)

    def undo() -> None:
        optimizer.__class__ = optimizer_class
        for name in changes:
            vars(optimizer).pop(name)
        if _FUSED_SCALING in attributes:
            vars(optimizer)[_FUSED_SCALING] = attributes[_FUSED_SCALING]
        for group, rate in zip(optimizer.param_groups, rates, strict=False):
            group["lr"] = group["lr"] if isinstance(rate, Tensor) else float(group["lr"])
        for state in optimizer.state.values():
            state.update({name: _dequantized(value) for name, value in state.items()})

    return Patch(undo)


def _check(optimizer: Optimizer) -> None:
    name = type(optimizer).__name__
    if type(optimizer) not in {Adam, AdamW}:
        raise UsageError(f"{name} has no 8-bit states", "use Adam or AdamW, or leave the optimizer setting at 'given'")
    if any(group["maximize"] for group in optimizer.param_groups):
        raise UsageError(f"{name} with maximize has no 8-bit states", "leave the optimizer setting at 'given'")
    if optimizer.state:
        raise UsageError(f"{name} has taken steps, and its states are not converted to 8 bits", "convert a new one")
    if "step" in vars(optimizer):
        raise UsageError(
            f"the step of {name} has been replaced, as schedulers of learning rates do",
            "convert it before the schedulers are created",
        )


def _class_for(optimizer: Optimizer) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from torchao import optim  # noqa: PLC0415  optional
        except ImportError:
            raise UsageError(
                "8-bit optimizer states need torchao, which isn't installed", "run `pip install 'oomph[eight-bit]'`"
            ) from None
    is_decoupled = {bool(group.get("decoupled_weight_decay", False)) for group in optimizer.param_groups}
    is_adamw = type(optimizer) is AdamW or is_decoupled == {True}
    return optim.AdamW8bit if is_adamw else optim.Adam8bit


def _dequantized(value: Any) -> Any:
    dequantize = getattr(value, "dequantize", None)
    is_quantized = type(value).__name__ == "OptimState8bit"
    return dequantize() if is_quantized and dequantize is not None else value
