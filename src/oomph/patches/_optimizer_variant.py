"""The implementation of an optimizer's update: fused (one kernel), foreach (multi-tensor kernels), single, 8-bit."""

from __future__ import annotations

from torch.optim import Optimizer

from ..errors import UsageError
from ..settings import OPTIMIZERS
from ._eight_bit import use_eight_bit_states
from ._patch import Patch

_FLAGS = {"fused": (False, True), "foreach": (True, False), "single": (False, False)}


def set_variant(optimizer: Optimizer, variant: str) -> Patch:
    """Switch an optimizer to the "fused", "foreach" or "single" implementation, or to "8bit" states.

    "given" changes nothing.

    Raises:
        UsageError: this optimizer has no such implementation, or the package for it is missing.
    """
    if variant == OPTIMIZERS[0]:
        return Patch(lambda: None)
    if variant == "8bit":
        return use_eight_bit_states(optimizer)
    foreach, fused = _FLAGS[variant]
    required = "fused" if fused else "foreach"
    if any(required not in group for group in optimizer.param_groups):
        raise UsageError(
            f"{type(optimizer).__name__} has no {variant} implementation", "leave the optimizer setting at 'given'"
        )
    before = [(group.get("foreach"), group.get("fused")) for group in optimizer.param_groups]

    def set_flags(flags: list[tuple[bool | None, bool | None]]) -> None:
        for group, (group_foreach, group_fused) in zip(optimizer.param_groups, flags, strict=True):
            group["foreach"] = group_foreach
            if "fused" in group:
                group["fused"] = group_fused

    set_flags([(foreach, fused)] * len(before))
    return Patch(lambda: set_flags(before))
