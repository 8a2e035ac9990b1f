"""What an Accelerator of accelerate must not do for its training to be guarded; accelerate is never imported."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import UsageError

_ONE_STEP = "runs forward, backward and update as one step of its own, which can't be repeated"
_REFUSED = {
    "DEEPSPEED": ("DeepSpeed", _ONE_STEP),
    "MEGATRON_LM": ("Megatron-LM", _ONE_STEP),
    "XLA": ("a TPU (XLA)", "reports that memory ran out only after the step, when nothing can be repeated"),
}
_MARK = "_is_accelerate_prepared"  # of prepared objects
_PARALLELISM = {"tp_size": "tensor", "cp_size": "context", "sp_size": "sequence"}


def check_accelerator(accelerator: Any) -> None:
    """Check that the guard can repeat what an Accelerator runs.

    Raises:
        UsageError: it trains with DeepSpeed, Megatron-LM, FSDP1, on a TPU, with a parallelism inside of a forward, or
            compiles the model of several ranks.
    """
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    if kind in _REFUSED:
        name, reason = _REFUSED[kind]
        raise UsageError(f"training with {name} can't be guarded, because it {reason}", "use DDP or a single process")
    if kind == "FSDP" and not getattr(accelerator, "is_fsdp2", False):
        raise UsageError("FSDP1 can't be guarded", "use FSDP2 (fsdp_version: 2) or DDP")
    plugin = getattr(getattr(accelerator, "state", None), "dynamo_plugin", None)
    backend = getattr(plugin, "backend", "NO")
    if getattr(accelerator, "num_processes", 1) > 1 and getattr(backend, "value", backend) != "NO":
        raise UsageError(
            "a model that accelerate compiles can't be guarded on several ranks, because its DDP is compiled, too",
            "leave out torch_compile, or compile blocks of the model yourself",
        )
    config = getattr(accelerator, "parallelism_config", None)
    for name, parallelism in _PARALLELISM.items():
        if (getattr(config, name, 1) or 1) > 1:
            raise UsageError(
                f"{parallelism} parallelism can't be guarded, because its ranks wait for each other in a forward",
                "use DDP or a single process",
            )


def check_prepared(accelerator: Any, model: nn.Module) -> None:
    """Check that a model, or a part of it, was prepared; mixed precision works in the forward of prepared models only.

    A model is prepared, too, if it was wrapped or compiled afterwards, or is a part of a prepared one.

    Raises:
        UsageError: nothing of it was prepared, or it is no model.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}", "pass the model that accelerator.prepare returned")
    prepared = getattr(accelerator, "_models", None)  # nothing public lists them
    if prepared is None:
        return
    known = {id(module) for each in prepared for module in each.modules()}
    # A model may have been prepared by another Accelerator.
    if not any(id(module) in known or getattr(module, _MARK, False) for module in model.modules()):
        raise UsageError("the model isn't prepared", "pass what accelerator.prepare returned")
