"""Gradients that are exchanged while backward still computes others, by ranks that may fail in the middle of it.

Ranks send the same buckets in the same order in every attempt, whatever happens to them: a bucket is sent when as many
of its gradients have arrived as in the last step, at the end of the attempt otherwise, and, by a rank that ran short,
after the fault, with whatever is in it. So nobody waits for a bucket that never comes; what was sent counts only once
all ranks agree that they succeeded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..units import MIB
from ._fault import catch, once, persist

_log = logging.getLogger("oomph")
_BUCKET = 25 * MIB  # as DistributedDataParallel has it
_LONGEST = 1 << 14  # steps between two attempts, at most
_LOOK_EVERY = 1.0  # seconds between two looks at how much memory is left
_READY, _NOT_YET, _REFUSED = range(3)  # what ranks say of the next step; the largest counts


class Overlap:
    """Whether gradients are exchanged during backward: while nothing fails and memory is far from its limit.

    All ranks do it or none. One fault, or one rank with little memory left, ends it for all of them and for so many
    steps, twice as many each time; the memory of the buckets is free meanwhile.

    Args:
        group: the ranks.
        wanted: False for never.
        calm: steps without a fault after which it is tried again.
    """

    def __init__(self, group: Any, *, wanted: bool, calm: int) -> None:
        self._group, self._wanted, self._wait = group, wanted, calm
        self._rest = 0  # steps until it is tried
        self._buckets: _Buckets | None = None
        self._agreed = self._refused = False
        self._looked = 0.0
        self.is_crowded: Callable[[], bool] = lambda: False
        self.used: _Buckets | None = None  # in this attempt

    def begin(self, *, update: bool) -> None:
        """An attempt begins."""
        self.used = self._buckets if update and self._agreed else None
        if self.used is not None:
            self.used.begin()

    def announce(self, *, final: bool) -> None:
        """A piece begins; final: gradients that arrive from now on are whole."""
        if self.used is not None:
            self.used.sending = final

    def prepare(self, parameters: Sequence[nn.Parameter]) -> None:
        """The attempt has succeeded here: send what was not sent, or make buckets for the next one."""
        if self.used is not None:
            self.used.flush(len(parameters))
        elif self._wanted and self._buckets is None and self._rest <= 0:
            fault = catch(lambda: self._make(parameters))  # memory that is too short for buckets is no fault
            self._refused = fault is not None

    def _make(self, parameters: Sequence[nn.Parameter]) -> None:
        self._buckets = _Buckets(parameters, self._group)

    def vote(self) -> list[int]:
        """Send what others wait for; what this rank says of this attempt and of the next one."""
        spoilt = self.used is not None and not self.used.make_up()
        now = time.monotonic()
        if self._buckets is not None and now >= self._looked + _LOOK_EVERY:
            self._looked, self._refused = now, self.is_crowded()
        following = _REFUSED if self._refused else _NOT_YET if self._buckets is None else _READY
        return [int(spoilt), following]

    def hear(self, told: Sequence[int], *, failed: bool) -> bool:
        """What all ranks say; whether an attempt that nobody failed must be made again."""
        spoilt, following = bool(told[0]), told[1]
        self._rest -= 1
        self._agreed = following == _READY
        if failed or spoilt:
            if self.used is not None:
                self.used.drain()
            self._give_up()
            self.close()
        elif following == _REFUSED:
            self._give_up()
        return spoilt and not failed

    def _give_up(self) -> None:
        self._agreed = self._refused = False
        self._rest, self._wait = self._wait, min(2 * self._wait, _LONGEST)
        if self._buckets is not None:
            _log.info("Gradients are exchanged after backward for %d steps.", self._rest)

    def finish(self) -> None:
        """Put the averages of what was sent into the gradients."""
        if self.used is not None:
            self.used.finish()
        if not self._agreed and self._rest > 0:
            self.close()

    def close(self) -> None:
        """Let go of the buckets."""
        if self._buckets is not None:
            self._buckets.close()
        self._buckets = self.used = None


class _Buckets:
    """The buckets of a model.

    Args:
        parameters: whose gradients are exchanged, in the same order on all ranks.
        group: of the ranks.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], group: Any) -> None:
        self._group, self._size = group, dist.get_world_size(group)
        # The last parameters have their gradients first.
        self._buckets = [_Bucket(chunk) for chunk in _chunks(list(reversed(parameters)))]
        self._works: list[Any] = []  # one for each bucket that was sent
        self.early = 0  # how many were sent during backward
        self.sending = self._spoilt = False  # whether gradients that arrive are whole; whether one was not
        self._handles = [
            one.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self._arrived(bucket))
            for bucket in self._buckets
            for one in bucket.parameters
            if one.requires_grad
        ]

    def begin(self) -> None:
        """An attempt begins."""
        self._works, self.sending, self._spoilt = [], False, False
        for bucket in self._buckets:
            bucket.waits = bucket.expected

    def _arrived(self, bucket: _Bucket) -> None:
        if not self.sending:
            return
        bucket.waits -= 1
        if bucket.waits < 0:  # a gradient that nobody expected, or that grew after it was sent
            self._spoilt = True
        while len(self._works) < len(self._buckets) and self._buckets[len(self._works)].waits <= 0:
            self._send()
        self.early = len(self._works)

    def _send(self) -> None:
        bucket = self._buckets[len(self._works)]
        bucket.fill()
        self._launch(bucket)

    def _launch(self, bucket: _Bucket) -> None:
        self._works.append(dist.all_reduce(bucket.block, dist.ReduceOp.SUM, group=self._group, async_op=True))

    def flush(self, expected: int) -> None:
        """Send what has not been sent: the attempt has succeeded here, for so many parameters."""
        self.sending = False
        if expected != sum(len(bucket.parameters) for bucket in self._buckets):
            self._spoilt = True  # some were frozen when the buckets were made, and are in none of them
        while len(self._works) < len(self._buckets):
            self._send()

    def make_up(self) -> bool:
        """Send whatever is left, because others wait for it; whether what was sent was what it should be."""
        self.sending = False
        whole = len(self._works) == len(self._buckets) and not self._spoilt
        while len(self._works) < len(self._buckets):
            persist(lambda: self._launch(self._buckets[len(self._works)]))
        return whole

    def drain(self) -> None:
        """Wait for everything that was sent, and forget it."""
        for work in self._works:
            work.wait()

    def finish(self) -> None:
        """Put the averages into the gradients that there are."""
        self.drain()
        for bucket in self._buckets:
            persist(once(lambda bucket=bucket: bucket.block.div_(self._size)))  # type: ignore[misc]
            persist(bucket.empty)

    def close(self) -> None:
        """Let go of the hooks and of the buckets."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._buckets = [], []


class _Bucket:
    """Gradients of one device and type, one behind the other."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        first = parameters[0]
        self.block = torch.zeros(sum(one.numel() for one in parameters), dtype=first.dtype, device=first.device)
        parts = self.block.split([one.numel() for one in parameters])
        self._views = [part.view(one.shape) for part, one in zip(parts, parameters, strict=True)]
        self.waits = 0  # gradients that are still to come
        self.expected = len(self._pairs())  # as many as came the last time

    def fill(self) -> None:
        """Take the gradients; zeros for those that this rank has not."""
        pairs = self._pairs()
        self.expected = len(pairs)
        if len(pairs) < len(self.parameters):
            self.block.zero_()
        if pairs:
            torch._foreach_copy_([view for view, _ in pairs], [gradient for _, gradient in pairs])

    def empty(self) -> None:
        """Give the gradients what was made of them."""
        pairs = self._pairs()
        if pairs:
            torch._foreach_copy_([gradient for _, gradient in pairs], [view for view, _ in pairs])

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        both = zip(self._views, self.parameters, strict=True)
        return [(view, one.grad) for view, one in both if one.grad is not None]


def _chunks(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters that share a bucket."""
    found: list[list[nn.Parameter]] = []
    room = 0
    for one in parameters:
        size = one.numel() * one.element_size()
        alike = found and (found[-1][0].device, found[-1][0].dtype) == (one.device, one.dtype)
        if not alike or size > room:
            found.append([])
            room = _BUCKET
        found[-1].append(one)
        room -= size
    return found
