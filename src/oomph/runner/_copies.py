"""A copy of many tensors in few blocks, made and put back by few calls."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

import torch
from torch import Tensor

from ._fault import catch

Key = tuple[torch.device, torch.dtype]


class Copies:
    """Copies of tensors, one block for each device and type.

    Cloning tensors one by one costs microseconds each; one call for all costs a few. The views that this needs are
    kept from step to step, as long as the tensors are the same ones.
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._places: list[int] = []
        self._groups: list[_Group] = []
        self._odd: list[Tensor] = []
        self._odd_copies: list[Tensor] = []

    @property
    def bytes(self) -> int:
        """What a copy takes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors)

    def take(self, tensors: Sequence[Tensor], *, host: bool = False) -> None:
        """Copy them; onto the host if asked, or where the device has no room."""
        if not self._knows(tensors):
            self._sort(tensors)
        for group in self._groups:
            group.take(host=host)
        self._odd_copies = [tensor.clone() for tensor in self._odd]

    def put_back(self) -> None:
        """Put the values back into the tensors."""
        for group in self._groups:
            group.put_back()
        for tensor, copy in zip(self._odd, self._odd_copies, strict=True):
            tensor.copy_(copy)

    def let_go(self) -> None:
        """Free the copies."""
        for group in self._groups:
            group.block = None
        self._odd_copies = []

    def _knows(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the tensors are those of the last time, in the same places."""
        return (
            len(tensors) == len(self._tensors)
            and all(map(is_, tensors, self._tensors))
            and list(map(Tensor.data_ptr, tensors)) == self._places
        )

    def _sort(self, tensors: Sequence[Tensor]) -> None:
        self._groups, self._odd, self._tensors = [], [], []
        groups: dict[Key, list[Tensor]] = {}
        for tensor in tensors:
            plain = tensor.detach()
            if _is_dense(plain):
                flat = plain.as_strided((plain.numel(),), (1,))
                groups.setdefault((plain.device, plain.dtype), []).append(flat)
            else:
                self._odd.append(plain)
        self._groups = [_Group(flats) for flats in groups.values()]
        self._tensors, self._places = list(tensors), [tensor.data_ptr() for tensor in tensors]


class _Group:
    """The tensors of one device and type, each as one row of numbers."""

    def __init__(self, flats: list[Tensor]) -> None:
        self._flats = flats
        self.block: Tensor | None = None

    def take(self, *, host: bool) -> None:
        self.block = None
        if host or catch(self._copy) is not None:
            self._copy_to_host()

    def _copy(self) -> None:
        self.block = torch.cat(self._flats)

    def _copy_to_host(self) -> None:
        sizes = [flat.numel() for flat in self._flats]
        block = torch.empty(sum(sizes), dtype=self._flats[0].dtype)
        torch._foreach_copy_(list(block.split(sizes)), self._flats)
        self.block = block

    def put_back(self) -> None:
        if self.block is not None:
            torch._foreach_copy_(self._flats, list(self.block.split([flat.numel() for flat in self._flats])))


def _is_dense(tensor: Tensor) -> bool:
    """Whether the tensor fills its stretch of memory without holes, in whatever order."""
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.numel() == 0:
        return False
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True
