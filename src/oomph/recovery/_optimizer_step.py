"""The optimizer update: optimizers, scaler, EMA and schedulers, all of them or none."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from ..errors import UsageError
from ..units import format_size
from ._caught_oom import CaughtOom, DumpMemory, free_memory
from ._config import GuardConfig
from ._retry_policy import Backoff
from ._signals import DeferSignals
from ._step_report import Fallback
from ._transaction import CommitState, Transaction
from .snapshots import (
    CounterSnapshot,
    GradSnapshot,
    ObjectSnapshot,
    OptimizerSnapshot,
    ParamGroupSnapshot,
    Snapshot,
    has_step_hooks,
    may_write_grads,
    optimizer_parameters,
    owner_of,
)

_log = logging.getLogger("oomph")
_FALLBACKS = (
    Fallback("host_backup", "keeping the optimizer's backup on the host", "a transfer in this step"),
    Fallback("single_tensor", "updating parameters one after the other", "more and smaller kernels in this step"),
)
_FUSED_TYPES = (SGD, Adam, AdamW, Adagrad)
_EXTRA_FALLBACKS = (0, 0, 1, 2)  # of each attempt, above those that updates start with


@dataclass
class UpdateResult:
    """The outcome of an update.

    Attributes:
        oom: the last out-of-memory error, if the update failed.
        retries: how often it was retried.
        fallbacks: the fallbacks that it needed.
        skipped: True if the scaler skipped it; None where only the device knows.
        partly_updated: weights without a backup may have been updated before it failed.
    """

    oom: CaughtOom | None = None
    retries: int = 0
    fallbacks: tuple[Fallback, ...] = ()
    skipped: bool | None = False
    partly_updated: bool = False


class OptimizerStep:
    """Runs optimizer updates, each completely or not at all.

    Most optimizers allocate between their writes, so memory can run out when half of the weights are updated. Their
    parameters and state are backed up before each update. A fused optimizer allocates nothing once it has state, so it
    needs no backup.

    Attributes:
        level: the number of fallbacks that the next update starts with.
        backup_bytes: size of the backup in the last update.
        grad_norm: norm of the gradients before clipping, in the last update.
        learning_rates: the learning rate of each param group in the last update.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        config: GuardConfig,
        scaler: Any,
        commit_state: CommitState,
        dump_memory: DumpMemory | None = None,
    ) -> None:
        self._optimizers, self._scaler, self._commit_state = optimizers, scaler, commit_state
        self._dump_memory = dump_memory
        self._schedulers, self._clip = config.schedulers, config.clip_grad_norm
        self._update_ema = None if config.ema is None else _ema_update(config.ema, model)
        self._objects: list[Snapshot] = [
            ObjectSnapshot(target, exclude=[model, *optimizers])
            for target in (scaler, *config.schedulers)
            if target is not None
        ]
        if config.ema is not None:
            owner = owner_of(config.ema)
            self._objects.append(
                CounterSnapshot(owner)
                if _updates_in_place(owner, model)
                else ObjectSnapshot(owner, exclude=[model, *optimizers], submodules=False)
            )
        self.level = 0
        self._backoff = Backoff(config.cooldown_steps)
        self.backup_bytes = 0
        self._has_announced_backup = False
        self._applied: set[Optimizer] = set()  # that stepped in this update
        self._is_broken = False  # a step without a backup failed after it was started
        self._defer_signals = DeferSignals()
        self.grad_norm: torch.Tensor | float | None = None
        self.learning_rates: tuple[torch.Tensor | float, ...] = ()

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All parameters that are updated."""
        if len(self._optimizers) == 1:
            return optimizer_parameters(self._optimizers[0])
        parameters = (param for optimizer in self._optimizers for param in optimizer_parameters(optimizer))
        return list({id(param): param for param in parameters}.values())  # optimizers may share some

    def prepare_grads(self) -> None:
        """Unscale and clip the gradients."""
        if self._scaler is not None:
            for optimizer in self._optimizers:
                self._scaler.unscale_(optimizer)
        if callable(self._clip):
            self.grad_norm = _as_norm(self._clip(self.parameters))
        elif self._clip is not None:
            self.grad_norm = nn.utils.clip_grad_norm_(self.parameters, self._clip)
        else:
            self.grad_norm = _total_norm(self.parameters)

    def reset_scaler(self) -> None:
        """Let the scaler accept the next step after an error that followed an update which stays."""
        states = getattr(self._scaler, "_per_optimizer_states", None)
        if states is not None:
            states.clear()

    def run(self, prepare: Callable[[], object] | None = None) -> UpdateResult:
        """Run the update; if it fails, everything is as before unless the result says otherwise.

        Args:
            prepare: called first, for gradients that can't be computed again and are backed up for it.
        """
        if self._scaler is None and self._clip is None and prepare is not None:
            prepare()  # it changes nothing
            prepare = None
        self.learning_rates = tuple(group["lr"] for opt in self._optimizers for group in opt.param_groups)
        self._applied.clear()
        self._is_broken = False
        if self._scaler is None:
            return self._run(prepare)
        # Whether the scaler let an optimizer step is known without waiting for the device only by a hook.
        handles = [
            optimizer.register_step_post_hook(lambda stepped, *_: self._applied.add(stepped))
            for optimizer in self._optimizers
        ]
        try:
            return self._run(prepare)
        finally:
            for handle in handles:
                handle.remove()

    def _run(self, prepare: Callable[[], object] | None) -> UpdateResult:
        result = UpdateResult()
        for retries, extra in enumerate(_EXTRA_FALLBACKS):
            level = min(self.level + extra, len(_FALLBACKS))
            backed_up = [opt for opt in self._optimizers if opt not in self._applied and not is_atomic(opt)]
            result.oom = self._try(backed_up, level, prepare)
            if result.oom is None:
                self._finish(result, level if backed_up else 0)
                return result
            free_memory(collect=retries > 0)
            result.retries += 1
            result.partly_updated = bool(self._applied) or self._is_broken
            if self._is_broken:
                break
        return result

    def _try(self, backed_up: list[Optimizer], level: int, prepare: Callable[[], object] | None) -> CaughtOom | None:
        backups = [
            OptimizerSnapshot(
                optimizer,
                before_update=True,
                with_grads=prepare is None and may_write_grads(optimizer),
                on_host=level > 0,
            )
            for optimizer in backed_up
        ]
        snapshots: list[Snapshot] = [*backups, *self._objects]
        if self._schedulers:  # they change the learning rates of optimizers without a backup, too
            snapshots += [ParamGroupSnapshot(optimizer) for optimizer in self._optimizers if optimizer not in backed_up]
        if prepare is not None:
            snapshots.append(GradSnapshot(self.parameters))

        def work() -> None:
            self.backup_bytes = sum(backup.nbytes for backup in backups)
            self._announce_backup(backed_up)
            if prepare is not None:
                prepare()
            self._step_all(backed_up, single_tensor=level == len(_FALLBACKS))

        oom = Transaction.of(snapshots, lambda: self._commit_state.committed, self._dump_memory).run(work)
        if oom is not None:
            self._applied -= set(backed_up)
        return oom

    def _step_all(self, backed_up: list[Optimizer], *, single_tensor: bool) -> None:
        for optimizer in backed_up:
            with _single_tensor(optimizer) if single_tensor else contextlib.nullcontext():
                self._step(optimizer)
        # Last, because these can't be undone.
        atomic = [optimizer for optimizer in self._optimizers if optimizer not in {*backed_up, *self._applied}]
        with self._defer_signals if atomic else contextlib.nullcontext():
            for optimizer in atomic:
                self._step_without_backup(optimizer)
            self._after_optimizers()
            self._commit_state.committed = True  # from here on an interrupt leaves the step as it is

    def _step_without_backup(self, optimizer: Optimizer) -> None:
        """Step an optimizer that can't be restored; if it fails after torch started the step, it is never repeated.

        The first write itself can't be observed: fused kernels don't count the versions of the tensors they write.
        """
        started: list[bool] = []
        handle = optimizer.register_step_pre_hook(lambda *_: started.append(True))
        try:
            self._step(optimizer)
        except BaseException:
            self._is_broken = bool(started)
            self._commit_state.partial |= self._is_broken
            raise
        finally:
            handle.remove()
        self._commit_state.partial |= optimizer in self._applied

    def _step(self, optimizer: Optimizer) -> None:
        if self._scaler is None:
            optimizer.step()
            self._applied.add(optimizer)
        else:
            self._scaler.step(optimizer)

    def _after_optimizers(self) -> None:
        if self._scaler is not None:
            self._scaler.update()
        for scheduler in self._schedulers:
            scheduler.step()
        if self._update_ema is not None:  # last, because an EMA that updates in place has no backup
            self._update_ema()

    def _finish(self, result: UpdateResult, level: int) -> None:
        result.fallbacks = _FALLBACKS[:level]
        if level > self.level:
            _log.warning("Out of memory in an optimizer update; retried by %s.", _FALLBACKS[level - 1])
            self._backoff.lengthen()
        self.level = level - 1 if level and self._backoff.count() else level
        if self._scaler is not None and self._scaler.is_enabled():
            # A fused optimizer checks for overflow in its kernel.
            is_known = not any(
                getattr(optimizer, "_step_supports_amp_scaling", False) for optimizer in self._optimizers
            )
            result.skipped = len(self._applied) < len(self._optimizers) if is_known else None

    def _announce_backup(self, backed_up: Sequence[Optimizer]) -> None:
        not_fused = [optimizer for optimizer in backed_up if not _is_fused(optimizer)]
        if self._has_announced_backup or not not_fused:
            return
        self._has_announced_backup = True
        is_on_gpu = any(param.is_cuda for param in self.parameters)
        can_be_fused = all(type(optimizer) in _FUSED_TYPES for optimizer in not_fused)
        _log.log(
            logging.WARNING if is_on_gpu else logging.INFO,
            "The guard backs up %s before each update (%s in the first one).%s",
            " and ".join(type(optimizer).__name__ for optimizer in not_fused),
            format_size(self.backup_bytes),
            " With fused=True it needs no backup." if can_be_fused else "",
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"level": self.level, "backoff": self._backoff.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.level = state["level"]
        self._backoff.load_state_dict(state["backoff"])


def is_atomic(optimizer: Optimizer) -> bool:
    """Return True if an update can't run out of memory after its first write.

    That is a fused update of one of torch's optimizers, without hooks before the step, once its state is allocated.
    """
    if type(optimizer) not in _FUSED_TYPES or not _is_fused(optimizer) or has_step_hooks(optimizer):
        return False
    if type(optimizer) is SGD and not any(group["momentum"] for group in optimizer.param_groups):
        return True
    if len(optimizer.state) >= len(optimizer_parameters(optimizer)) and all(optimizer.state.values()):
        return True
    with_state = {id(param) for param, entry in optimizer.state.items() if entry}  # hashing a tensor is slow
    return all(id(param) in with_state for param in optimizer_parameters(optimizer) if param.grad is not None)


def _is_fused(optimizer: Optimizer) -> bool:
    return all(group.get("fused") for group in optimizer.param_groups)


@contextlib.contextmanager
def _single_tensor(optimizer: Optimizer) -> Iterator[None]:
    """Update parameters one after the other, without temporaries for all of them."""
    groups = [group for group in optimizer.param_groups if "foreach" in group]
    before = [group["foreach"] for group in groups]
    for group in groups:
        group["foreach"] = False
    try:
        yield
    finally:
        for group, value in zip(groups, before, strict=True):
            group["foreach"] = value


def _total_norm(parameters: Sequence[nn.Parameter]) -> torch.Tensor | None:
    """Return the norm of all gradients; None if some are sparse or sharded, which would need a collective."""
    grads = [param.grad for param in parameters if param.grad is not None]
    if not grads or any(type(grad) is not torch.Tensor or grad.layout is not torch.strided for grad in grads):
        return None
    with torch.no_grad():
        if len({(grad.device, grad.dtype) for grad in grads}) > 1:
            return nn.utils.get_total_norm(grads)
        norms = torch._foreach_norm(grads)  # noqa: SLF001  get_total_norm takes three times as long
        total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return total


def _as_norm(value: object) -> torch.Tensor | float | None:
    """Return the gradient norm if that is what the user's clip function returned."""
    if isinstance(value, torch.Tensor):
        return value.detach() if value.numel() == 1 else None
    return value if isinstance(value, float) else None


def _updates_in_place(ema: Any, model: nn.Module) -> bool:
    """Return True for an EMA that declares to allocate nothing in an update, on a GPU: it can't fail half-way."""
    return getattr(ema, "updates_in_place", False) and all(param.is_cuda for param in model.parameters())


def _ema_update(ema: Any, model: nn.Module) -> Callable[[], object]:
    """Return the function that updates an EMA of the weights.

    Raises:
        UsageError: it has no such method, or it is a plain function, whose state can't be restored.
    """
    if not hasattr(owner_of(ema), "__dict__") or isinstance(ema, (FunctionType, functools.partial)):
        raise UsageError("ema is a function, whose state can't be restored", "pass an object with update(model)")
    candidates = (getattr(ema, "update_parameters", None), getattr(ema, "update", None), ema)
    update = next((candidate for candidate in candidates if callable(candidate)), None)
    if update is None:
        fix = "pass an object with update(model) or update_parameters(model)"
        raise UsageError(f"ema is a {type(ema).__name__}", fix)
    return torch.no_grad()(functools.partial(update, model))
