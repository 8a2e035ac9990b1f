"""Quantization-aware training of a detector: its layers round as in int8, except for the head's."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from ... import patches
from ...job import Job
from ..model import Yolov5


def fake_quantize(network: Yolov5) -> None:
    """Let the layers of a detector round as in int8, except for the head's, which stay in float when it is exported."""
    head = set(network.head.modules())
    patches.apply_fake_quantization(network, [name for name, module in network.named_modules() if module in head])


def fake_quantized_job(job: Job) -> Job:
    """Return a Job that trains the same detector with fake quantization."""

    def model() -> nn.Module:
        network = job.model()
        assert isinstance(network, Yolov5)  # noqa: S101  for the type checker
        fake_quantize(network)
        return network

    return replace(job, model=model)
