"""The training step that is predicted and measured: always the same one.

A fresh process; the model moved, put into its precision and layout, and the optimizer built; several steps; for each
piece the inputs are made on the device, forward and loss run inside autocast (if any), the loss is divided among the
pieces, backward, and inputs and loss are dropped; then the optimizer step and `zero_grad(set_to_none=True)`.
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

from ..errors import OomphError, UsageError
from ..job import Job
from ..patches import blocks, checkpoint, convert_batch, convert_model, set_variant
from ..settings import Settings
from ._autocast import CudaAutocast
from ._build import build_batch, build_model, build_optimizer, in_order, own_tensors
from ._data import Taken
from ._device import Device, Host
from ._events import Phase, StorageKind, Trace
from ._kernels import CudaKernels
from ._recorder import Recorder, watching
from ._recurrent import flatten

STEPS = 3
_AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}


def trace_step(job: Job, settings: Settings, device: Device | Host, steps: int = STEPS) -> Trace:
    """Trace several training steps of a Job as they would run there, then validation and what else keeps memory.

    Raises:
        UsageError: the Job raises, or its loss is no scalar.
    """
    try:
        return _trace(job, settings, device, steps, Taken(job.mask_fraction))
    except UsageError as refused:
        # Code that checks its data (`if bad.any(): raise`) goes on only if nothing is bad.
        try:
            return _trace(job, settings, device, steps, Taken(job.mask_fraction, truth=False))
        except UsageError:
            raise refused from refused.__cause__


def _trace(job: Job, settings: Settings, device: Device | Host, steps: int, taken: Taken) -> Trace:
    mode = FakeTensorMode()
    recorder = Recorder(device, taken)
    complaints = logging.getLogger("torch._subclasses.fake_tensor")
    complaints.disabled = True  # it prints a traceback for what we say in a sentence
    collecting = gc.isenabled()
    gc.disable()  # a collection in the middle would free cycles earlier than they are freed on the device
    try:
        model = build_model(job, mode)
        with ExitStack() as stack:
            stack.enter_context(_cuda_means_cpu())
            if isinstance(device, Device):
                stack.enter_context(CudaKernels(device, recorder.assumptions))
            if isinstance(device, Device) and settings.precision in _AUTOCAST:
                stack.enter_context(CudaAutocast(_AUTOCAST[settings.precision]))
            stack.enter_context(mode)
            run = _Run(job, settings, recorder, mode)
            stack.enter_context(recorder)
            run.build(model)
            with watching(model, recorder):
                for step in range(steps):
                    run.step(step)
                recorder.end_training()
                run.afterwards(steps)
        return recorder.trace()
    finally:
        complaints.disabled = False
        if collecting:
            gc.enable()


class _Run:
    """One traced run."""

    def __init__(self, job: Job, settings: Settings, recorder: Recorder, mode: FakeTensorMode) -> None:
        self.job, self.settings, self.recorder, self.mode = job, settings, recorder, mode

    def build(self, model: nn.Module) -> None:
        """Put the model and the optimizer onto the device; what changes there is copied there."""
        self.model = model
        if self.settings.checkpointing == "blocks":
            checkpoint(model, blocks(model))
        with self.recorder.phase(Phase.BUILD, 0):
            for prefix, module in in_order(model):
                self._move(prefix, module)
            convert_model(model, self.settings)
            for prefix, module in in_order(model):
                self._name(prefix, module)
        self.optimizer = build_optimizer(self.job, model, on_gpu=isinstance(self.recorder.device, Device))
        set_variant(self.optimizer, self.settings.optimizer)
        scaled = self.settings.precision == "amp-fp16"
        self.scale = torch.full((), 65536.0) if scaled else None

    def _move(self, prefix: str, module: nn.Module) -> None:
        for name, tensor, is_parameter in own_tensors(module):
            self.recorder.adopt(tensor, StorageKind.PARAMETER if is_parameter else StorageKind.BUFFER, prefix + name)
        if isinstance(module, nn.RNNBase) and isinstance(self.recorder.device, Device):
            with self.mode:
                flatten(module)
            self._name(prefix, module)

    def _name(self, prefix: str, module: nn.Module) -> None:
        for name, tensor, is_parameter in own_tensors(module):
            self.recorder.label(tensor, StorageKind.PARAMETER if is_parameter else StorageKind.BUFFER, prefix + name)

    def step(self, step: int) -> None:
        """One optimizer step over all pieces."""
        self.recorder.begin_step()
        pieces = self.settings.micro_batch_sizes
        for count in pieces:
            self._piece(step, count, len(pieces))
        with self.recorder.phase(Phase.OPTIMIZER, step):
            self._unscale()
            self.optimizer.step()
            for state in self.optimizer.state.values():
                for value in tree_leaves(dict(state)):
                    if isinstance(value, Tensor):
                        self.recorder.label(value, StorageKind.STATE)
            self.optimizer.zero_grad(set_to_none=True)

    def afterwards(self, step: int) -> None:
        """What happens between training steps: validation, a moving average of the weights, saving a checkpoint."""
        self.model.eval()
        try:
            with self.recorder.phase(Phase.VALIDATION, step), torch.no_grad():
                self._loss(self._batch(self.settings.micro_batch_sizes[0]))
        except UsageError:
            # In eval mode some models return predictions, of which the loss can make nothing.
            self.recorder.assumptions.append("validation was not traced: the loss needs the model in training mode")
        self.model.train()
        with self.recorder.phase(Phase.AVERAGE, step):
            average = [
                torch.empty_like(tensor) for _, module in in_order(self.model) for _, tensor, _ in own_tensors(module)
            ]
            for tensor in average:
                self.recorder.label(tensor, StorageKind.STATE)
            del average
        with self.recorder.phase(Phase.CHECKPOINT, step):
            pass  # torch.save copies one tensor after the other to the host: nothing more on the device

    def _piece(self, step: int, count: int, pieces: int) -> None:
        with self.recorder.phase(Phase.FORWARD, step):
            batch = self._batch(count)
            loss = self._loss(batch)  # which stays until the end: loops report it
            share = loss / pieces
        with self.recorder.phase(Phase.BACKWARD, step):
            if self.scale is not None:
                share = share * self.scale
            share.backward()
            for name, parameter in self.model.named_parameters():
                if parameter.grad is not None:
                    self.recorder.label(parameter.grad, StorageKind.GRADIENT, name)
            del batch, loss, share

    def _batch(self, count: int) -> Any:
        recording, self.recorder._recording = self.recorder._recording, False
        batch = build_batch(self.job, count, self.settings.size, self.mode)
        self.recorder._recording = recording
        for leaf in tree_leaves(batch):
            if isinstance(leaf, Tensor):
                self.recorder.adopt(leaf, StorageKind.INPUT)
        changed = convert_batch(batch, self.settings)
        for leaf in tree_leaves(changed):
            if isinstance(leaf, Tensor):
                self.recorder.label(leaf, StorageKind.INPUT)
        return changed

    def _loss(self, batch: Any) -> Tensor:
        dtype = _AUTOCAST.get(self.settings.precision, torch.bfloat16)
        try:
            with torch.autocast("cpu", dtype, enabled=self.settings.precision in _AUTOCAST):
                loss = self.job.run(self.model, batch)
        except OomphError:
            raise
        except Exception as error:
            words = " ".join(str(error).split())[:300]
            raise UsageError(
                f"the Job can't be run with {self.settings.batch} samples of size {self.settings.size}: "
                f"{type(error).__name__}: {words}",
                "check the Job's batch, loss and the size",
            ) from error
        return _scalar(loss)

    def _unscale(self) -> None:
        """What the scaler does before an fp16 step: it divides in place and keeps two numbers.

        The operation itself is left out: traced, it would make new gradients.
        """
        if self.scale is not None:
            torch.zeros(1), torch.ones(1)


def _scalar(loss: object) -> Tensor:
    """Refuse what can't be differentiated as one number."""
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss
    got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
    raise UsageError(f"the Job's loss is {got}, not a scalar", "return one number, such as a mean")


@contextmanager
def _cuda_means_cpu() -> Iterator[None]:
    """Let a model that says `torch.autocast("cuda")` reach the autocast of the trace, which sits on the CPU's key."""
    original = torch.autocast.__init__

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    torch.autocast.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = original  # type: ignore[method-assign]
