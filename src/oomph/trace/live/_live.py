"""A live program, traced from its first tensor on the device to its last recorded step."""

from __future__ import annotations

import functools
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch._C import _group_tensors_by_device_and_dtype
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.optim.optimizer import _foreach_supported_types as _optimizer_foreach_types
from torch.utils._foreach_utils import _foreach_supported_types

from ...patches import apply_settings
from ...settings import Settings
from .._device import CpuDevice, CudaDevice, EmulatedDevice
from .._memory_savers import TracedHostMemory
from .._trace import Phase, Trace
from ..fake import DataAssumptions, ValueTracker, untraced_transformers
from ..kernels import CudaKernels
from ._cuda_module import emulated_cuda, replace_attribute
from ._data_parallel import install_data_parallel
from ._evaluation import RepeatedEvaluations
from ._functions import DeviceFunctions
from ._placement import DevicePlacement
from ._recorder import LiveRecorder
from ._steps import StepTracker


class LiveTrace:
    """Trace of the code inside `running()`, as if it ran on a device.

    Attributes:
        before_training: called with each model that the program trains, before its first training forward.
    """

    def __init__(
        self,
        emulated: EmulatedDevice,
        steps: int,
        on_end: Callable[[], None],
        *,
        boolean: bool = True,
        stacks: bool = False,
    ) -> None:
        self.emulated = emulated
        self.before_training: Callable[[nn.Module], object] = lambda _: None
        values = ValueTracker(DataAssumptions(boolean=boolean), floats_decide=False)  # scripts log their loss
        self.recorder = LiveRecorder(emulated.device, values, stacks=stacks)
        self.functions = DeviceFunctions(self.recorder, is_host_only=isinstance(emulated.device, CpuDevice))
        self.placement = DevicePlacement(self.functions)
        self.tracker = StepTracker(self.recorder, steps, on_end)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Trace the code inside. Functions of torch are replaced until it ends."""
        with ExitStack() as stack:
            _quiet(stack)
            device = self.emulated.device
            if isinstance(device, CudaDevice):
                stack.enter_context(emulated_cuda(device, self.emulated.name, self.emulated.memory))
                stack.enter_context(CudaKernels(device, self.recorder.assumptions))
            self.placement.install(stack)
            install_data_parallel(self.recorder, stack)
            self._watch_modules(stack)
            self._watch_backward(stack)
            self._watch_optimizers(stack)
            replace_attribute(stack, FakeTensor, "device", property(self.functions.device_of))
            replace_attribute(stack, torch, "inference_mode", _without_gradients)
            stack.enter_context(self.recorder)
            stack.enter_context(self.functions)
            self.tracker.enter(Phase.BUILD)
            yield

    def trace(self) -> Trace:
        """Return what was recorded."""
        self.recorder.end_training()
        return self.recorder.trace()

    def first_pass(self) -> Trace | None:
        """Return what was recorded up to the first update, or of the first of several passes that it waited for."""
        return self.tracker.first_pass

    def apply(self, model: nn.Module, settings: Settings) -> None:
        """Apply settings to a model and the program's optimizers.

        Raises:
            UsageError: the model or an optimizer can't have a setting.
        """
        apply_settings(model, self.tracker.all_optimizers, settings, TracedHostMemory(self.recorder))

    def _watch_modules(self, stack: ExitStack) -> None:
        original, tracker = nn.Module.__call__, self.tracker
        evaluations = RepeatedEvaluations(self.recorder)

        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            is_outermost = not tracker.is_in_model
            if is_outermost:
                self.placement.place(module)
            if is_outermost and tracker.starts_training(module):
                self.before_training(module)
                tracker.add_trained(module)
            with tracker.module(module, args, kwargs) as running:
                if is_outermost:
                    with untraced_transformers():
                        output = evaluations.run(module, (args, kwargs), lambda: original(module, *args, **kwargs))
                else:
                    output = original(module, *args, **kwargs)
                if running is not None:
                    running.end(output, self.recorder)
                return output

        replace_attribute(stack, nn.Module, "__call__", call)

    def _watch_backward(self, stack: ExitStack) -> None:
        def watched(function: Any) -> Any:
            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                with self.tracker.backward():
                    return function(*args, **kwargs)

            return run

        for name in ("backward", "grad"):
            replace_attribute(stack, torch.autograd, name, watched(getattr(torch.autograd, name)))

    def _watch_optimizers(self, stack: ExitStack) -> None:
        original, tracker = Optimizer.__init__, self.tracker

        @functools.wraps(original)
        def init(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            tracker.add_optimizer(optimizer)

        def before(optimizer: Optimizer, *_: Any) -> None:
            self.placement.place_optimizer(optimizer)
            tracker.before_step()

        replace_attribute(stack, Optimizer, "__init__", init)
        stack.callback(register_optimizer_step_pre_hook(before).remove)
        stack.callback(register_optimizer_step_post_hook(tracker.after_step).remove)
        if isinstance(self.emulated.device, CudaDevice):
            # On a GPU, torch's multi-tensor kernels are the default; it doesn't choose them for tensor subclasses.
            for types in (_optimizer_foreach_types, _foreach_supported_types):
                types.append(FakeTensor)
                stack.callback(types.remove, FakeTensor)
            replace_attribute(stack, torch._C, "_group_tensors_by_device_and_dtype", self._group_tensors)

    def _group_tensors(self, tensors: Any, with_indices: bool = False) -> Any:  # noqa: FBT001, FBT002  torch's
        """Group tensors for the multi-tensor kernels; torch's own groups name the device that fakes run on."""
        groups: dict[Any, Any] = _group_tensors_by_device_and_dtype(tensors, with_indices)
        first = {(group[0][0][0].device, dtype): group for (_, dtype), group in groups.items() if group[0][0]}
        return first if len(first) == len(groups) else groups


def _quiet(stack: ExitStack) -> None:
    """Switch off garbage collection, which would free reference cycles earlier than on the device, and a log."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.disabled = True  # it logs a traceback for errors that we report in one sentence
    stack.callback(setattr, log, "disabled", False)
    if gc.isenabled():
        stack.callback(gc.enable)
    gc.disable()


def _without_gradients(mode: Any = True) -> Any:  # noqa: FBT002  torch's signature
    """Replace `torch.inference_mode`, whose tensors reach a dispatch mode before their operations are decomposed."""
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.set_grad_enabled(torch.is_grad_enabled() and not mode)
