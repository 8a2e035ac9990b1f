"""Workspaces of fp32 convolutions on Ampere and Ada, as public runs with cuDNN 9.1 imply them. No torch.

Only the peaks of those runs are known (`benchmarks/consumer_gpus.py`), not the workspaces. What explains the peaks: the
forward pass converts input, output and weight as on Hopper, and the gradients convert nothing.
"""

from __future__ import annotations

from ._convolution_workspaces import ConvolutionShape
from ._convolution_workspaces import forward_workspace as hopper_forward_workspace


def forward_workspace(conv: ConvolutionShape) -> int:
    """Return the workspace bytes of the forward pass."""
    if conv.depthwise and conv.channels_last:
        # Each channel is a group of its own and is padded to what tensor cores load at once.
        return conv.align * (conv.input_bytes() + conv.output_bytes() + conv.align * conv.weight_bytes)
    return hopper_forward_workspace(conv, convert_output=True)
