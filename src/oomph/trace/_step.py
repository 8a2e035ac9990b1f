"""The training step that oomph predicts and measures.

A fresh process builds the model, moves and converts it on the device, and builds the optimizer. Then several steps run.
For each micro-batch, the inputs are created on the device, forward and loss run inside autocast (if any), the loss is
divided by the number of micro-batches, backward runs, and inputs and loss are released. The step ends with the
optimizer's update and `zero_grad(set_to_none=True)`.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from ..errors import OomphError, UsageError, describe
from ..job import Job
from ..patches import AUTOCAST_DTYPES, autocast, blocks, checkpoint, convert_batch, convert_model, set_variant
from ..settings import Settings
from ._allocation_recorder import AllocationRecorder, report_modules
from ._cuda_autocast import CudaAutocast
from ._cuda_kernels import CudaKernels
from ._data_dependent import DataAssumptions
from ._device import CpuDevice, CudaDevice
from ._fake_job import build_batch, build_model, build_optimizer, direct_tensors, modules_in_order
from ._recurrent import flatten_weights
from ._trace import Phase, StorageKind, Trace

STEPS = 3


def trace_step(job: Job, settings: Settings, device: CudaDevice | CpuDevice, steps: int = STEPS) -> Trace:
    """Trace several training steps of a Job on a device, then validation and a moving average of the weights.

    Raises:
        UsageError: the Job's functions fail, or its loss is not a scalar.
    """
    try:
        return _trace(job, settings, device, steps, DataAssumptions(job.mask_fraction))
    except UsageError as first_error:
        # Code that validates its data (`if bad.any(): raise`) passes only if booleans are False.
        try:
            return _trace(job, settings, device, steps, DataAssumptions(job.mask_fraction, boolean=False))
        except UsageError:
            raise first_error from first_error.__cause__


def _trace(job: Job, settings: Settings, device: CudaDevice | CpuDevice, steps: int, assumed: DataAssumptions) -> Trace:
    mode = FakeTensorMode()
    recorder = AllocationRecorder(device, assumed)
    fake_tensor_log = logging.getLogger("torch._subclasses.fake_tensor")
    fake_tensor_log.disabled = True  # it logs a traceback for errors that we report in one sentence
    gc_enabled = gc.isenabled()
    gc.disable()  # a collection during the trace would free reference cycles earlier than on the device
    try:
        model = build_model(job, mode)
        with ExitStack() as stack:
            stack.enter_context(_cuda_autocast_as_cpu())
            if isinstance(device, CudaDevice):
                stack.enter_context(CudaKernels(device, recorder.assumptions))
            if isinstance(device, CudaDevice) and settings.precision in AUTOCAST_DTYPES:
                stack.enter_context(CudaAutocast(AUTOCAST_DTYPES[settings.precision]))
            stack.enter_context(mode)
            tracer = _StepTracer(job, settings, recorder, mode)
            stack.enter_context(recorder)
            tracer.build(model)
            with report_modules(model, recorder):
                for step in range(steps):
                    tracer.step(step)
                recorder.end_training()
                tracer.between_steps(steps)
        return recorder.trace()
    finally:
        fake_tensor_log.disabled = False
        if gc_enabled:
            gc.enable()


class _StepTracer:
    """Runs the phases of training under a recorder."""

    def __init__(self, job: Job, settings: Settings, recorder: AllocationRecorder, mode: FakeTensorMode) -> None:
        self.job, self.settings, self.recorder, self.mode = job, settings, recorder, mode

    def build(self, model: nn.Module) -> None:
        """Move the model to the device, convert it there and build the optimizer."""
        self.model = model
        if self.settings.checkpointing == "blocks":
            checkpoint(model, blocks(model))
        with self.recorder.phase(Phase.BUILD, 0):
            for prefix, module in modules_in_order(model):
                self._move(prefix, module)
            convert_model(model, self.settings)
            for prefix, module in modules_in_order(model):
                self._label_tensors(prefix, module)
            # Some optimizers, such as Adagrad, create their state with the optimizer.
            self.optimizer = build_optimizer(self.job, model, on_gpu=isinstance(self.recorder.device, CudaDevice))
            self._label_state()
        set_variant(self.optimizer, self.settings.optimizer)
        has_scaler = self.settings.precision == "amp-fp16"
        self.scale = torch.full((), 65536.0) if has_scaler else None

    def _move(self, prefix: str, module: nn.Module) -> None:
        for name, tensor, is_parameter in direct_tensors(module):
            self.recorder.adopt(tensor, StorageKind.PARAMETER if is_parameter else StorageKind.BUFFER, prefix + name)
        if isinstance(module, nn.RNNBase) and isinstance(self.recorder.device, CudaDevice):
            with self.mode:
                flatten_weights(module)
            self._label_tensors(prefix, module)

    def _label_tensors(self, prefix: str, module: nn.Module) -> None:
        for name, tensor, is_parameter in direct_tensors(module):
            self.recorder.label(tensor, StorageKind.PARAMETER if is_parameter else StorageKind.BUFFER, prefix + name)

    def step(self, step: int) -> None:
        """Run one optimizer step over all micro-batches."""
        self.recorder.start_step()
        sizes = self.settings.micro_batch_sizes
        for size in sizes:
            self._micro_batch(step, size, len(sizes))
        with self.recorder.phase(Phase.OPTIMIZER, step):
            self._unscale()
            self.optimizer.step()
            self._label_state()
            self.optimizer.zero_grad(set_to_none=True)

    def _label_state(self) -> None:
        for state in self.optimizer.state.values():
            for value in tree_leaves(dict(state)):
                if isinstance(value, Tensor):
                    self.recorder.label(value, StorageKind.STATE)

    def between_steps(self, step: int) -> None:
        """Run validation, a moving average of the weights and saving a checkpoint."""
        self.model.eval()
        try:
            with self.recorder.phase(Phase.VALIDATION, step), torch.no_grad():
                self._loss(self._batch(self.settings.micro_batch_sizes[0]))
        except UsageError:
            # In eval mode, some models return predictions, which the loss function rejects.
            self.recorder.assumptions.append("validation was not traced: the loss needs the model in training mode")
        self.model.train()
        with self.recorder.phase(Phase.AVERAGE, step):
            average = [
                torch.empty_like(tensor)
                for _, module in modules_in_order(self.model)
                for _, tensor, _ in direct_tensors(module)
            ]
            for tensor in average:
                self.recorder.label(tensor, StorageKind.STATE)
            del average
        with self.recorder.phase(Phase.CHECKPOINT, step):
            pass  # torch.save copies the tensors to the host one by one and allocates nothing on the device

    def _micro_batch(self, step: int, size: int, micro_batches: int) -> None:
        with self.recorder.phase(Phase.FORWARD, step):
            batch = self._batch(size)
            loss = self._loss(batch)  # kept until the end, because training loops report it
            weighted = loss / micro_batches
        with self.recorder.phase(Phase.BACKWARD, step):
            if self.scale is not None:
                weighted = weighted * self.scale
            weighted.backward()
            for name, parameter in self.model.named_parameters():
                if parameter.grad is not None:
                    self.recorder.label(parameter.grad, StorageKind.GRADIENT, name)
            del batch, loss, weighted

    def _batch(self, size: int) -> Any:
        with self.recorder.paused():
            batch = build_batch(self.job, size, self.settings.size, self.mode)
        for leaf in tree_leaves(batch):
            if isinstance(leaf, Tensor):
                self.recorder.adopt(leaf, StorageKind.INPUT)
        converted = convert_batch(batch, self.settings)
        for leaf in tree_leaves(converted):
            if isinstance(leaf, Tensor):
                self.recorder.label(leaf, StorageKind.INPUT)
        return converted

    def _loss(self, batch: Any) -> Tensor:
        try:
            with autocast(self.settings.precision, "cpu"):
                loss = self.job.run(self.model, batch)
        except OomphError:
            raise
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"the Job can't run with {self.settings.batch} samples of size {self.settings.size}: "
                f"{describe(error, 300)}",
                "check the Job's batch, its loss and the size",
            ) from error
        return _check_scalar(loss)

    def _unscale(self) -> None:
        """Allocate the two numbers that the gradient scaler keeps.

        Unscaling itself runs in place on the device; traced on fake tensors it would allocate new gradients.
        """
        if self.scale is not None:
            torch.zeros(1), torch.ones(1)


def _check_scalar(loss: object) -> Tensor:
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss
    got = (
        f"a tensor of shape {tuple(loss.shape)}"
        if isinstance(loss, Tensor)
        else f"a value of type {type(loss).__name__}"
    )
    raise UsageError(f"the Job's loss is {got}, not a scalar", "return a single number, such as a mean")


@contextmanager
def _cuda_autocast_as_cpu() -> Iterator[None]:
    """Redirect `torch.autocast("cuda")` in the model's code to the CPU's key, where the trace applies CUDA's rules."""
    original = torch.autocast.__init__

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    torch.autocast.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = original  # type: ignore[method-assign]
