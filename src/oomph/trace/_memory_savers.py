"""Offloaded activations and 8-bit optimizer states in a trace."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from ._allocation_recorder import AllocationRecorder
from ._trace import TO_DEVICE, TO_HOST, StorageKind


class TracedHostMemory:
    """Host memory for offloaded activations that counts copies but no memory of the device."""

    def __init__(self, recorder: AllocationRecorder) -> None:
        self._recorder = recorder

    def store(self, tensor: Tensor) -> Tensor:
        """Return a tensor that is not on the device."""
        self._recorder.add_cost(TO_HOST, tensor.numel() * tensor.element_size())
        with self._recorder.paused():
            return torch.empty_like(tensor)

    def load(self, copy: Tensor, device: torch.device) -> Tensor:
        """Return a new tensor on the device."""
        del device
        self._recorder.add_cost(TO_DEVICE, copy.numel() * copy.element_size())
        return torch.empty_like(copy)


def step_eight_bit(optimizer: Optimizer, recorder: AllocationRecorder) -> None:
    """Run the step of an optimizer with 8-bit states as compiled code, which has hardly any temporary tensors.

    Eager, it would need a dozen float32 tensors of the size of a parameter. Counted are two, for the states.
    """
    assumptions = len(recorder.assumptions)
    with recorder.paused():
        optimizer.step()
    for tensor in (value for state in optimizer.state.values() for value in state.values()):
        recorder.adopt(tensor, StorageKind.STATE)
    del recorder.assumptions[assumptions:]  # that it is compiled changes nothing
    params = [param for group in optimizer.param_groups for param in group["params"] if param.grad is not None]
    for param in params:
        recorder.add_cost("eight_bit_update", param.numel() * (3 * param.element_size() + 4))
    largest = max((param.numel() for param in params), default=0)
    torch.empty(2 * largest, dtype=torch.float32)
