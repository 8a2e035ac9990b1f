"""The average of gradients over ranks, through one bounded block, in which nothing can run short half-way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..units import MIB
from ._fault import once, persist

BUCKET_BYTES = 32 * MIB  # a larger gradient is reduced where it is


class Reduction:
    """Averages gradients and spreads buffers.

    Args:
        group: of the gradients.
        control: a gloo group of the same ranks, for small questions.
    """

    def __init__(self, group: Any, control: Any) -> None:
        self._group, self._control = group, control
        self._size = dist.get_world_size(group)
        self._blocks: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def prepare(self, parameters: Sequence[nn.Parameter], buffers: Sequence[Tensor]) -> None:
        """Allocate the blocks, once."""
        for tensor in (*parameters, *buffers):
            key = (tensor.device, tensor.dtype)
            if key not in self._blocks:
                self._blocks[key] = torch.empty(
                    BUCKET_BYTES // tensor.element_size(), dtype=tensor.dtype, device=tensor.device
                )

    def complete(self, parameters: Sequence[nn.Parameter]) -> None:
        """Give a zero gradient to what only other ranks have used; what no rank used stays without one."""
        missing = torch.tensor([int(one.grad is None) for one in parameters], dtype=torch.int32)
        dist.all_reduce(missing, dist.ReduceOp.SUM, group=self._control)
        for parameter, count in zip(parameters, missing.tolist(), strict=True):
            if parameter.grad is None and count < self._size:
                persist(lambda parameter=parameter: _zero(parameter))  # type: ignore[misc]

    def average(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients."""
        gradients = [one.grad for one in parameters if one.grad is not None]
        self._through(gradients, self._reduce)

    def spread(self, buffers: Sequence[Tensor]) -> None:
        """Give every rank the first one's buffers."""
        first = dist.get_global_rank(self._group, 0)
        self._through(buffers, lambda block: dist.broadcast(block, first, group=self._group))

    def _reduce(self, block: Tensor) -> None:
        dist.all_reduce(block, dist.ReduceOp.SUM, group=self._group)
        persist(once(lambda: block.div_(self._size)))

    def _through(self, tensors: Sequence[Tensor], collective: Callable[[Tensor], object]) -> None:
        """Run a collective over tensors, block by block."""
        for chunk in _chunks(tensors):
            block = self._blocks[chunk[0].device, chunk[0].dtype]
            if chunk[0].numel() > block.numel():
                collective(chunk[0] if chunk[0].is_contiguous() else _memory_of(chunk[0]))
                continue
            self._one(chunk, block, collective)

    @staticmethod
    def _one(chunk: list[Tensor], block: Tensor, collective: Callable[[Tensor], object]) -> None:
        views: list[Tensor] = []

        def fill() -> None:
            used = sum(tensor.numel() for tensor in chunk)
            parts = block[:used].split([tensor.numel() for tensor in chunk])
            views[:] = [part.view(tensor.shape) for part, tensor in zip(parts, chunk, strict=True)]
            torch._foreach_copy_(views, chunk)

        persist(fill)
        collective(block[: sum(tensor.numel() for tensor in chunk)])
        persist(lambda: torch._foreach_copy_(chunk, views))


def _zero(parameter: nn.Parameter) -> None:
    parameter.grad = torch.zeros_like(parameter)


def _memory_of(tensor: Tensor) -> Tensor:
    """A large gradient in another order of dimensions, as the collective takes it: the memory itself."""
    return tensor.as_strided((tensor.numel(),), (1,))


def _chunks(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors of one device and type that fit into a block together, in order."""
    waiting: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        key = (tensor.device, tensor.dtype)
        room = BUCKET_BYTES // tensor.element_size()
        chunk = waiting.setdefault(key, [])
        if tensor.numel() > room:
            yield [tensor]
        elif sum(one.numel() for one in chunk) + tensor.numel() > room:
            yield chunk
            waiting[key] = [tensor]
        else:
            chunk.append(tensor)
    yield from (chunk for chunk in waiting.values() if chunk)
