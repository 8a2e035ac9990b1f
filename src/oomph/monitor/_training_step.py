"""The training step that is predicted and measured; `trace` runs the same step on fake tensors.

The inputs of each micro-batch are created on the device, forward and loss run under autocast (if any), the weighted
loss is backpropagated, and the inputs are released. Then the optimizer steps and the gradients are set to None.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..settings import Settings

if TYPE_CHECKING:
    import torch

    from ..job import Job

# Small enough that random data never overflows: a skipped step would leave the optimizer without its state.
_INITIAL_LOSS_SCALE = 256.0


class TrainingStep:
    """A model and an optimizer on a device, ready to run training steps.

    Args:
        job: The Job to train.
        settings: The settings to apply to it.
        device: The device to train on.
    """

    def __init__(self, job: Job, settings: Settings, device: torch.device) -> None:
        import torch  # noqa: PLC0415  this module is imported without torch

        from ..patches import apply_checkpointing, apply_offload, convert_model, set_variant  # noqa: PLC0415

        assert job.optimizer is not None  # noqa: S101  a Job has one
        self._job, self._settings, self._device = job, settings, device
        self._model = job.model().to(device).train()
        convert_model(self._model, settings)
        apply_checkpointing(self._model, settings.checkpointing)
        apply_offload(self._model, settings.offload)
        built = job.optimizer(self._model)
        self._optimizers = list(built) if isinstance(built, Sequence) else [built]
        for optimizer in self._optimizers:
            set_variant(optimizer, settings.optimizer)
        uses_fp16 = settings.precision == "amp-fp16"
        self._scaler = torch.amp.GradScaler(device.type, init_scale=_INITIAL_LOSS_SCALE, enabled=uses_fp16)

    def run(self) -> None:
        """Run one training step."""
        from ..patches import apply_loss_chunks  # noqa: PLC0415

        with apply_loss_chunks(self._settings.loss_chunks):
            self._run_micro_batches()
        for optimizer in self._optimizers:
            self._scaler.step(optimizer)
        self._scaler.update()
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _run_micro_batches(self) -> None:
        sizes = self._settings.micro_batch_sizes
        if self._settings.passes > 1 and len(sizes) > 1:
            self._run_two_passes(sizes)
        else:
            for samples in sizes:
                self._run_micro_batch(samples)

    def _run_micro_batch(self, samples: int) -> None:
        from ..patches import autocast  # noqa: PLC0415

        inputs = self._batch(samples)
        with autocast(self._settings.precision, self._device.type):
            loss = self._job.run(self._model, inputs)
        self._scaler.scale(loss / len(self._settings.micro_batch_sizes)).backward()

    def _run_two_passes(self, sizes: Sequence[int]) -> None:
        """Run each micro-batch twice; random masks may differ, which doesn't matter for memory and time."""
        import torch  # noqa: PLC0415

        from ..losses import OutputParts, outputs_with_grads  # noqa: PLC0415
        from ..patches import autocast  # noqa: PLC0415

        parts = OutputParts()
        batches = [self._batch(size)[0] for size in sizes]
        with torch.no_grad():
            for inputs, size in zip(batches, sizes, strict=True):
                parts.add(self._outputs(inputs), size)
        with autocast(self._settings.precision, self._device.type):
            loss = self._job.loss_of(parts.joined(), self._batch(sum(sizes))[1])
        self._scaler.scale(loss).backward()
        for inputs, grads in zip(batches, parts.take_grads(), strict=True):
            torch.autograd.backward(*outputs_with_grads(self._outputs(inputs), grads))

    def _outputs(self, inputs: Any) -> Any:
        from ..patches import autocast  # noqa: PLC0415

        with autocast(self._settings.precision, self._device.type):
            return self._job.outputs(self._model, inputs)

    def _batch(self, samples: int) -> Any:
        from torch.utils._pytree import tree_map  # noqa: PLC0415

        from ..patches import convert_batch  # noqa: PLC0415

        batch = tree_map(self._to_device, self._job.batch(samples, self._settings.size))
        return convert_batch(batch, self._settings)

    def _to_device(self, value: Any) -> Any:
        import torch  # noqa: PLC0415

        return value.to(self._device) if isinstance(value, torch.Tensor) else value

    def time(self, steps: int) -> list[float]:
        """Run steps and return the seconds of each, including its work on the device."""
        seconds = []
        self._synchronize()
        for _ in range(steps):
            start = time.perf_counter()
            self.run()
            self._synchronize()
            seconds.append(time.perf_counter() - start)
        return seconds

    def _synchronize(self) -> None:
        import torch  # noqa: PLC0415

        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
