"""How an optimizer's update runs: one kernel for all (fused), several for all (foreach), or one after the other."""

from __future__ import annotations

from torch.optim import Optimizer

from ..errors import UsageError
from ..settings import OPTIMIZERS
from ._patch import Patch

_FLAGS = {"fused": (False, True), "foreach": (True, False), "single": (False, False)}


def set_variant(optimizer: Optimizer, variant: str) -> Patch:
    """Let an optimizer run in another variant: "fused", "foreach", "single"; "given" leaves it as it is.

    Raises:
        UsageError: this optimizer has no such variant.
    """
    if variant == OPTIMIZERS[0]:
        return Patch(lambda: None)
    foreach, fused = _FLAGS[variant]
    lacking = "fused" if fused else "foreach"
    if any(lacking not in group for group in optimizer.param_groups):
        raise UsageError(
            f"{type(optimizer).__name__} has no {variant} variant", "leave the optimizer setting at 'given'"
        )
    before = [(group.get("foreach"), group.get("fused")) for group in optimizer.param_groups]

    def put(values: list[tuple[bool | None, bool | None]]) -> None:
        for group, (each, one) in zip(optimizer.param_groups, values, strict=True):
            group["foreach"] = each
            if "fused" in group:
                group["fused"] = one

    put([(foreach, fused)] * len(before))
    return Patch(lambda: put(before))
