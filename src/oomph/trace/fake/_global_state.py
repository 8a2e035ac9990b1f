"""Global state that a model's code may change: saved before a trace, restored after it, whatever happens."""

from __future__ import annotations

import gc
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

_SEED = 0  # draws during a trace are the same in every run


@contextmanager
def preserve_global_state() -> Iterator[None]:
    """Restore random states, torch's defaults and flags, autocast, warning filters and garbage collection on exit."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    restores = [*_random_states(), *_torch_flags(), *_autocast_states(), _attribute(log, "disabled")]
    gc_enabled, stack = gc.isenabled(), ExitStack()
    stack.enter_context(warnings.catch_warnings())
    try:
        torch.manual_seed(_SEED)
        random.seed(_SEED)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(_SEED)
        log.disabled = True  # it logs a traceback for errors that we report in one sentence
        gc.disable()  # a collection during the trace would free reference cycles earlier than on the device
        yield
    finally:
        stack.close()
        for restore in restores:
            restore()
        if gc_enabled:
            gc.enable()


def _attribute(owner: Any, name: str) -> Callable[[], None]:
    value = getattr(owner, name)
    return lambda: setattr(owner, name, value)


def _call(set_value: Callable[..., Any], *args: Any) -> Callable[[], None]:
    return lambda: set_value(*args)


def _random_states() -> Iterator[Callable[[], None]]:
    yield _call(torch.set_rng_state, torch.get_rng_state())
    yield _call(random.setstate, random.getstate())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield _call(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
    if "numpy" in sys.modules:
        numpy_random = sys.modules["numpy"].random
        yield _call(numpy_random.set_state, numpy_random.get_state())


def _torch_flags() -> Iterator[Callable[[], None]]:
    yield _call(torch.set_default_dtype, torch.get_default_dtype())
    yield _call(torch._C._set_grad_enabled, torch.is_grad_enabled())
    yield _call(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    yield lambda: torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    yield from (_attribute(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic"))
    if getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None) is None:
        yield _reset_default_device
    yield _call(torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())


def _reset_default_device() -> None:
    if getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None) is not None:
        torch.set_default_device(None)


def _autocast_states() -> Iterator[Callable[[], None]]:
    yield _call(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
    for device in ("cpu", "cuda"):
        yield _call(torch.set_autocast_enabled, device, torch.is_autocast_enabled(device))
        yield _call(torch.set_autocast_dtype, device, torch.get_autocast_dtype(device))
