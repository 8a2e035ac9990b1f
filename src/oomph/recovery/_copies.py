"""A copy of many tensors in few blocks, made and put back by few calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_

import torch
from torch import Tensor

from ..errors import OomphError
from ..units import MIB
from ._fault import catch

Key = tuple[torch.device, torch.dtype]

_KEPT = 4 * MIB  # a block on a GPU up to this size stays from step to step, and is only written again
_MANY = 32  # tensors whose copying is recorded, because a GPU is told of each of them otherwise
_SETTLED = 3  # times that they were the same ones before that
_TURNS = 32  # of which one part each is then looked at, to see whether they were moved


class Copies:
    """Copies of tensors, one block for each device and type.

    Cloning tensors one by one costs microseconds each; one call for all costs a few. The views that this needs are
    kept from step to step, as long as the tensors are the same ones.
    """

    def __init__(self) -> None:
        self._tensors: Sequence[Tensor] = ()
        self._dense: list[Tensor] = []  # those that are copied by groups
        self._places: list[int] = []  # of these
        self._groups: list[_Group] = []
        self._odd: list[Tensor] = []  # the others: sparse ones, those with holes, those of a kind of their own
        self._odd_copies: list[Tensor] = []
        self._times = 0  # that they were copied as they are
        self._recording: torch.cuda.CUDAGraph | None = None
        self._moves = False  # whether somebody gives tensors other memory

    @property
    def bytes(self) -> int:
        """What a copy takes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors)

    def take(self, tensors: Sequence[Tensor], *, host: bool = False) -> None:
        """Copy them; onto the host if asked, or where the device has no room.

        Args:
            tensors: what is copied; who changes the list makes a new one.
            host: onto the host.
        """
        if not self._knows(tensors):
            self._sort(tensors)
        if host or self._recording is None:
            self._recording = None
            for group in self._groups:
                group.take(host=host)
            self._record()
        elif catch(self._recording.replay) is None:
            self._times += 1
        else:
            self._recording = None
            self.take(tensors, host=True)
        if self._odd:
            self._odd_copies = [tensor.detach().clone() for tensor in self._odd]

    def _record(self) -> None:
        """Record the copying of many tensors, once it is settled which: a GPU does it again when told one word."""
        self._times += 1
        if (
            self._moves
            or self._times != _SETTLED
            or len(self._dense) < _MANY
            or not all(group.stays for group in self._groups)
        ):
            return
        devices = {group.device for group in self._groups}
        if len(devices) == 1:
            self._recording = record(devices.pop(), [group.write for group in self._groups])

    def put_back(self) -> None:
        """Put the values back into the tensors.

        Raises:
            OomphError: somebody has moved one of those whose places were not all looked at.
        """
        if self._recording is not None and not self._are_in_place():
            raise OomphError(
                "a tensor was given other memory in the last steps (x.data = y), and what it was before is not known",
                "copy into it (x.copy_(y)), and resume from the last checkpoint",
            )
        for group in self._groups:
            group.put_back()
        with torch.no_grad():  # a sparse one that is detached could not be written
            for tensor, copy in zip(self._odd, self._odd_copies, strict=True):
                _write(tensor, copy)

    def differ(self) -> bool:
        """Whether any of the tensors has other values than its copy; on a GPU this waits for it."""
        odd = zip(self._odd, self._odd_copies, strict=True)
        return any(group.differs() for group in self._groups) or any(not _is_same(*pair) for pair in odd)

    def let_go(self) -> None:
        """Free the copies, but for small blocks that are kept."""
        for group in self._groups:
            group.let_go()
        self._odd_copies = []

    def _knows(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the tensors are those of the last time, in the same places."""
        if tensors is not self._tensors:
            if len(tensors) != len(self._tensors) or not all(map(is_, tensors, self._tensors)):
                return False
            self._tensors = tensors
        # Asking all of them would take longer than the copying that is recorded.
        turn = slice(self._times % _TURNS, None, _TURNS) if self._recording is not None else slice(None)
        if self._are_in_place(turn):
            return True
        self._moves = True
        return False

    def _are_in_place(self, some: slice = slice(None)) -> bool:
        return list(map(Tensor.data_ptr, self._dense[some])) == self._places[some]

    def _sort(self, tensors: Sequence[Tensor]) -> None:
        self._tensors, self._dense, self._odd, self._groups = (), [], [], []
        self._times, self._recording = 0, None
        groups: dict[Key, list[Tensor]] = {}
        for tensor in tensors:
            plain = tensor.detach()
            if _is_dense(plain):
                groups.setdefault((plain.device, plain.dtype), []).append(tensor)
                self._dense.append(tensor)
            else:
                self._odd.append(tensor)
        self._groups = [_Group(own) for own in groups.values()]
        self._tensors, self._places = tensors, [tensor.data_ptr() for tensor in self._dense]


class _Group:
    """The tensors of one device and type; their copy is one block, which on a GPU stays, to be written again, if small.

    Args:
        tensors: all of them.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        plain = [tensor.detach() for tensor in tensors]
        self._flats = [one.as_strided((one.numel(),), (1,)) for one in plain]  # each as one row of numbers
        self._sizes = [flat.numel() for flat in self._flats]
        self.device = self._flats[0].device
        self._keeps = _is_kept(self._flats)
        self._block: Tensor | None = None
        self._rows: list[Tensor] = []  # of a block that stays

    def take(self, *, host: bool) -> None:
        if host or not self._rows:
            self._forget()
        if host or catch(self._copy) is not None:
            self._forget()
            self._copy_to_host()

    @property
    def stays(self) -> bool:
        return bool(self._rows)

    def write(self) -> None:
        torch._foreach_copy_(self._rows, self._flats)

    def _copy(self) -> None:
        if self._rows:
            self.write()
            return
        self._block = torch.cat(self._flats)
        if self._keeps:
            self._rows = list(self._block.split(self._sizes))

    def _copy_to_host(self) -> None:
        block = torch.empty(sum(self._sizes), dtype=self._flats[0].dtype)
        torch._foreach_copy_(list(block.split(self._sizes)), self._flats)
        self._block = block

    def put_back(self) -> None:
        if self._block is not None:
            torch._foreach_copy_(self._flats, list(self._block.split(self._sizes)))

    def differs(self) -> bool:
        if self._block is None:
            return False
        return not all(map(_is_same, self._flats, self._block.split(self._sizes)))

    def let_go(self) -> None:
        if not self._rows:
            self._block = None

    def _forget(self) -> None:
        self._block, self._rows = None, []


def record(device: torch.device, works: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph | None:
    """What works tell a GPU, to be told again at once; nothing is done now. None where it can't be recorded.

    They must neither allocate nor wait. Not by `torch.cuda.graph`, which waits for the GPU and empties its cache.
    """
    recording = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
            recording.capture_begin(capture_error_mode="thread_local")
            try:
                for work in works:
                    work()
            finally:
                recording.capture_end()
    except RuntimeError:  # of a driver, or in somebody's own recording
        return None
    return recording


def _is_same(tensor: Tensor, copy: Tensor) -> bool:
    """Whether two tensors have the same values; a number that is none is the same as itself."""
    if tensor.layout is not torch.strided:
        tensor, copy = tensor.to_dense(), copy.to_dense()
    return tensor.shape == copy.shape and bool(
        torch.isclose(tensor, copy.to(tensor.device), 0, 0, equal_nan=True).all()
    )


def _write(tensor: Tensor, copy: Tensor) -> None:
    """Put a copy back into a tensor of any layout, also one that was made larger or repeats itself."""
    if tensor.layout is not torch.strided:
        tensor.copy_(copy)
        return
    if tensor.shape != copy.shape:
        tensor.resize_(copy.shape)
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:  # an expanded one: all of them are the first
            tensor, copy = tensor.narrow(dim, 0, 1), copy.narrow(dim, 0, 1)
    tensor.copy_(copy)


def _is_kept(flats: Sequence[Tensor]) -> bool:
    """Whether a copy may stay: on the CPU a new one is faster, and a large one is in the way of the next forward."""
    return flats[0].is_cuda and sum(flat.numel() for flat in flats) * flats[0].element_size() <= _KEPT


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
