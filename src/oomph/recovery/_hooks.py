"""Whether somebody's own code runs within an optimizer's step."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks as _all_after
from torch.optim.optimizer import _global_optimizer_pre_hooks as _all_before


def is_hooked_before(optimizer: Optimizer) -> bool:
    """Whether it does before the step, or instead of it."""
    own = optimizer.__dict__
    replaced = own.get("step")  # a scheduler does, to count the steps
    if replaced is not None and getattr(replaced, "__wrapped__", None) is not type(optimizer).step:
        return True
    return bool(own.get("_optimizer_step_pre_hooks") or _all_before)


def is_hooked(optimizer: Optimizer, ours: int = 0) -> bool:
    """Whether it does at all, but for so many hooks of ours after it."""
    after = optimizer.__dict__.get("_optimizer_step_post_hooks", ())
    return is_hooked_before(optimizer) or len(after) > ours or bool(_all_after)
