"""Snapshots of the state that a retry restores, and a look at what a forward changes."""

from ._object_snapshots import ModuleAttributeSnapshot, ObjectSnapshot, check_restorable, modules_of, owner_of
from ._side_effects import SideEffects, SpectralNormSnapshot, SplitEffects, stray_gradients
from ._snapshots import (
    BufferSnapshot,
    CounterSnapshot,
    GradSnapshot,
    GradStash,
    OptimizerSnapshot,
    ParamGroupSnapshot,
    Restore,
    RngSnapshot,
    Snapshot,
    all_parameters,
    has_step_hooks,
    may_write_grads,
    optimizer_parameters,
    rng_states,
    set_rng_states,
)

__all__ = [
    "BufferSnapshot",
    "CounterSnapshot",
    "GradSnapshot",
    "GradStash",
    "ModuleAttributeSnapshot",
    "ObjectSnapshot",
    "OptimizerSnapshot",
    "ParamGroupSnapshot",
    "Restore",
    "RngSnapshot",
    "SideEffects",
    "Snapshot",
    "SpectralNormSnapshot",
    "SplitEffects",
    "all_parameters",
    "check_restorable",
    "has_step_hooks",
    "may_write_grads",
    "modules_of",
    "optimizer_parameters",
    "owner_of",
    "rng_states",
    "set_rng_states",
    "stray_gradients",
]
