"""FSDP2: ranks agree before each collective, so that an attempt which fails on one of them is retried by all.

Forward and backward of a sharded model gather weights and reduce gradients: a rank without memory would leave the
others waiting. So before each of these collectives the ranks vote over a gloo group whether one of them has failed. If
so, all of them leave the attempt at the same place, and torch resets what FSDP2 had in flight.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ...distributed import ControlGroup
from .._caught_oom import CaughtOom

_NEEDED = ("reset_iter_state", "set_custom_all_gather", "set_custom_reduce_scatter")  # torch 2.13 has all of them
_FAILED = "CUDA out of memory on another rank"  # ends the attempt like an error of this rank


class CollectiveVotes:
    """Votes before the collectives of a sharded model.

    Attributes:
        is_supported: False if torch is too old to call anything before a collective, or to reset FSDP2 after an error.
    """

    def __init__(self, model: nn.Module, control: ControlGroup) -> None:
        self._control = control
        self._modules: list[Any] = [module for module in model.modules() if is_sharded(module)]
        inner = {id(part) for module in self._modules for part in module.modules() if part is not module}
        self._roots = [module for module in self._modules if id(module) not in inner]
        self._is_active = self._is_known = False
        self.is_supported = all(hasattr(module, name) for module in self._modules for name in _NEEDED) and all(
            len(_param_groups(module)) <= 1 for module in self._modules
        )
        if self.is_supported:
            for module in self._modules:
                self._install(module)

    def _install(self, module: Any) -> None:
        """Let the collectives of a module wait for a vote; those that the user has set run after it."""
        for group in _param_groups(module):
            module.set_custom_all_gather(_Voting(group._all_gather_comm, self))  # noqa: SLF001
            module.set_custom_reduce_scatter(_Voting(group._reduce_scatter_comm, self))  # noqa: SLF001

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Vote before each collective inside."""
        self._is_active, self._is_known = True, False
        try:
            yield
        finally:
            self._is_active = False

    def before_collective(self) -> None:
        """Agree that no rank has failed.

        Raises:
            OutOfMemoryError: one has.
        """
        if self._is_active and self._any_failed(failed=False):
            self._is_known = True
            raise torch.OutOfMemoryError(_FAILED)

    def end_attempt(self, oom: CaughtOom | None) -> CaughtOom | None:
        """Return the error if the attempt failed on any rank; the model is then as if it had not run."""
        if self._is_known:
            oom = CaughtOom(None)
        elif self._any_failed(failed=oom is not None):
            oom = oom or CaughtOom(None)
        if oom is not None:
            self._reset()
        return oom

    def _reset(self) -> None:
        for root in self._roots:
            root.reset_iter_state()
        for module in self._modules:
            for group in _param_groups(module):
                for param in group.fsdp_params:  # torch leaves the gradients of gathered weights
                    param.unsharded_accumulated_grad = None
                    if hasattr(param, "_unsharded_param"):
                        param.unsharded_param.grad = None

    def _any_failed(self, *, failed: bool) -> bool:
        return self._control.max_over_ranks([int(failed)]) == [1]


class _Voting:
    """A collective of FSDP2 that is preceded by a vote."""

    def __init__(self, comm: Any, votes: CollectiveVotes) -> None:
        self._comm, self._votes = comm, votes

    def allocate(self, *args: Any, **kwargs: Any) -> Any:
        """Allocate the memory of the collective."""
        return self._comm.allocate(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the collective, if no rank has failed."""
        self._votes.before_collective()
        return self._comm(*args, **kwargs)


def is_sharded(module: nn.Module) -> bool:
    """Return True for a module that `fully_shard` was applied to."""
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def _param_groups(module: Any) -> list[Any]:
    groups: list[Any] = module._get_fsdp_state()._fsdp_param_groups  # noqa: SLF001  torch has setters, no getters
    return groups
