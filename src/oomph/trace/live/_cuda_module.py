"""`torch.cuda` on a machine without a GPU: what a training program asks of it before and between its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from .._cuda_autocast import CudaAutocast
from .._device import CudaDevice
from ._functions import GPU, LEGACY_TYPES, LegacyTensorType

_NOTHING = """
    init _lazy_init set_device synchronize empty_cache ipc_collect reset_peak_memory_stats reset_max_memory_allocated
    reset_max_memory_cached reset_accumulated_memory_stats set_per_process_memory_fraction manual_seed manual_seed_all
    seed seed_all set_rng_state set_rng_state_all set_stream
"""
_ZERO = """
    current_device initial_seed memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached
    max_memory_cached utilization
"""


@contextmanager
def emulated_cuda(device: CudaDevice, name: str, memory: int) -> Iterator[None]:
    """Let `torch.cuda` describe a GPU that isn't there, and autocast for `cuda` apply to the trace."""
    with ExitStack() as patches:
        for attribute, value in _cuda_attributes(device, name, memory).items():
            replace_attribute(patches, torch.cuda, attribute, value)
        for attribute, value in _ACCELERATOR.items():
            if hasattr(torch, "accelerator"):
                replace_attribute(patches, torch.accelerator, attribute, value)
        _redirect_autocast(patches)
        scaler = torch.amp.GradScaler
        replace_attribute(patches, scaler, "_maybe_opt_step", _step_without_overflow)
        replace_attribute(patches, torch.nn.DataParallel, "forward", _forward_on_one_gpu)
        patches.enter_context(_RegionAutocast())
        yield


def replace_attribute(patches: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until the stack of patches is closed."""
    if hasattr(owner, name):
        patches.callback(setattr, owner, name, getattr(owner, name))
    else:
        patches.callback(delattr, owner, name)
    setattr(owner, name, value)


class _Stream:
    """Stands for a stream or an event of CUDA: work is in order anyway."""

    cuda_stream = 0
    device = GPU

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Stream:  # noqa: PYI034  Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def record(self, *_: Any) -> None:
        """Do nothing."""

    def wait(self, *_: Any) -> None:
        """Do nothing."""

    wait_stream = wait_event = synchronize = record_event = wait

    def query(self) -> bool:
        """Return True: all work is done."""
        return True

    def is_capturing(self) -> bool:
        """Return False: no graph is captured."""
        return False

    def elapsed_time(self, _: Any) -> float:
        """Return the milliseconds between two events: nothing takes time in a trace."""
        return 1.0


class _RegionAutocast(CudaAutocast):
    """CUDA's autocast rules with the dtype of the region that is running."""

    def __init__(self) -> None:
        super().__init__(torch.float16)

    @property
    def dtype(self) -> torch.dtype:
        return torch.get_autocast_dtype("cpu")

    @dtype.setter
    def dtype(self, _: torch.dtype) -> None:
        pass


def _cuda_attributes(device: CudaDevice, name: str, memory: int) -> dict[str, Any]:
    properties = SimpleNamespace(
        name=name,
        total_memory=memory,
        major=device.capability[0],
        minor=device.capability[1],
        multi_processor_count=device.processors,
        max_threads_per_multi_processor=device.threads,
        is_integrated=False,
        is_multi_gpu_board=False,
        warp_size=32,
    )
    return {
        **dict.fromkeys(_NOTHING.split(), _returns(None)),
        **dict.fromkeys(_ZERO.split(), _returns(0)),
        **{name: LegacyTensorType(dtype) for name, dtype in LEGACY_TYPES.items()},
        "is_available": _returns(True),
        "is_initialized": _returns(True),
        "is_current_stream_capturing": _returns(False),
        "device_count": _returns(1),
        "get_device_name": _returns(name),
        "get_device_capability": _returns(device.capability),
        "get_device_properties": _returns(properties),
        "is_bf16_supported": _returns(device.capability[0] >= 8),  # noqa: PLR2004  since Ampere
        "mem_get_info": _returns((memory, memory)),
        "memory_stats": lambda *_, **__: {},
        "memory_summary": _returns(""),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "current_stream": _Stream,
        "default_stream": _Stream,
        "stream": lambda *_, **__: nullcontext(),
        "device": lambda *_, **__: nullcontext(),
        "Stream": _Stream,
        "Event": _Stream,
    }


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


_ACCELERATOR: dict[str, Callable[..., Any]] = {
    "is_available": _returns(True),
    "device_count": _returns(1),
    "current_accelerator": _returns(torch.device("cuda")),
    "current_device_index": _returns(0),
    "set_device_index": _returns(None),
    "synchronize": _returns(None),
    "empty_cache": _returns(None),
    "current_stream": _Stream,
}


def _redirect_autocast(patches: ExitStack) -> None:
    """Apply `torch.autocast("cuda")` to the CPU's key, where the trace applies CUDA's rules."""
    init, is_enabled, get_dtype = torch.autocast.__init__, torch.is_autocast_enabled, torch.get_autocast_dtype

    def redirected(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        is_cuda = device_type == "cuda"
        init(self, "cpu" if is_cuda else device_type, (dtype or torch.float16) if is_cuda else dtype, *args, **kwargs)

    replace_attribute(patches, torch.autocast, "__init__", redirected)
    replace_attribute(patches, torch, "is_autocast_enabled", lambda *_, **__: is_enabled("cpu"))
    replace_attribute(patches, torch, "get_autocast_dtype", lambda *_, **__: get_dtype("cpu"))
    replace_attribute(patches, torch, "get_autocast_gpu_dtype", lambda: get_dtype("cpu"))


def _step_without_overflow(_: Any, optimizer: torch.optim.Optimizer, __: Any, *args: Any, **kwargs: Any) -> Any:
    """Take the step of a gradient scaler: a step that is skipped needs less memory."""
    return optimizer.step(*args, **kwargs)


def _forward_on_one_gpu(parallel: Any, *inputs: Any, **kwargs: Any) -> Any:
    return parallel.module(*inputs, **kwargs)
