"""Signs of life between ranks, so that none waits for one that is gone."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from typing import Any

import torch
from torch.distributed import distributed_c10d

from ..monitor import Recorder

_log = logging.getLogger("oomph")
_EVERY = 1.0  # seconds between two signs of life
_GRACE = 4.0  # seconds in which a rank may end by itself, once a reason is known
_BYE = "bye"
_made = [0]  # guards of this process; every rank makes them in the same order


class Watchdog:
    """A thread that tells the other ranks that this one lives, and ends this one when another doesn't.

    A rank that waits in a collective can't be woken by an exception; when a reason to end is known, and the rank has
    not ended by itself after some seconds, the process is ended from here, with the reason.

    Args:
        rank: this one.
        size: how many there are.
        patience: seconds without a sign of life after which a rank counts as dead.
        recorder: is told the reason.
    """

    def __init__(self, rank: int, size: int, patience: float, recorder: Recorder | None) -> None:
        self._rank, self._size, self._patience, self._recorder = rank, size, patience, recorder
        _made[0] += 1
        self._name = f"oomph-guard-{_made[0]}"
        self._store = _own_store()
        self._stopped = threading.Event()
        self._known: str | None = None
        self._leaving = False
        self.busy = False  # whether this rank is inside a step, where it may wait for the others
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._store.set(self._key("beat", rank), "0")
        if rank == 0:
            self._store.set(self._key("reason"), "")

    def start(self) -> None:
        """Begin, once every rank has made its watchdog."""
        self._thread.start()
        atexit.register(self.close)

    def leave(self, reason: str) -> None:
        """Tell the others that this rank ends, and why; the first reason counts."""
        self._leaving = True
        text = f"rank {self._rank}: {' '.join(reason.split())}"
        try:
            self._store.compare_set(self._key("reason"), "", text)
        except (RuntimeError, OSError):
            _log.debug("the store is gone")  # so are the others, or they will notice by themselves

    def reason(self, otherwise: str) -> str:
        """Why another rank is gone, once a collective with it has failed; from here on this rank ends by itself."""
        until = time.monotonic() + 2 * _EVERY
        while self._known is None and time.monotonic() < until:
            time.sleep(0.05)  # the reason may be on its way
        self._leaving = True
        return self._known or f"another rank is gone ({otherwise})"

    def close(self) -> None:
        """Stop, and say goodbye: a rank that ends in good order is not dead."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join(2 * _EVERY)
        with contextlib.suppress(RuntimeError, OSError):
            self._store.set(self._key("beat", self._rank), _BYE)

    def _key(self, what: str, rank: int | None = None) -> str:
        return f"{self._name}/{what}" if rank is None else f"{self._name}/{what}/{rank}"

    def _run(self) -> None:
        others = [rank for rank in range(self._size) if rank != self._rank]
        keys = [self._key("reason"), *(self._key("beat", rank) for rank in others)]
        seen = {rank: (b"", time.monotonic()) for rank in others}
        beats = 0
        while not self._stopped.wait(_EVERY):
            beats += 1
            try:
                self._store.set(self._key("beat", self._rank), str(beats))
                reason, *signs = self._store.multi_get(keys)
            except (RuntimeError, OSError):
                # The first rank may have ended in good order, unless somebody is waiting for it.
                self._end("rank 0, which keeps the store, is gone", only_busy=True)
                return
            now = time.monotonic()
            for rank, sign in zip(others, signs, strict=True):
                if sign != seen[rank][0]:
                    seen[rank] = (sign, now)
            silent = [rank for rank in others if now - seen[rank][1] > self._patience]
            gone = [rank for rank in silent if seen[rank][0] == _BYE.encode()]
            dead = [rank for rank in silent if rank not in gone]
            if reason:
                self._end(reason.decode())
                return
            if dead:
                self._end(f"rank {dead[0]} gave no sign of life for {self._patience:.0f} s")
                return
            if gone and self.busy:
                self._end(f"rank {gone[0]} has ended before this one", only_busy=True)
                return

    def _end(self, reason: str, *, only_busy: bool = False) -> None:
        """Let this rank end by itself, or end it."""
        self._known = reason
        if self._stopped.wait(_GRACE) or self._leaving or (only_busy and not self.busy):
            return
        print(f"oomph: this rank ({self._rank}) ends, because of {reason}", file=sys.stderr, flush=True)  # noqa: T201  nobody is left to raise to
        if self._recorder is not None:
            self._recorder.event("error", error="RankLost", text=reason)
        os._exit(1)


def _own_store() -> Any:
    """A connection of our own to the store of the run: a wait in another thread would block a shared one."""
    c10d: Any = distributed_c10d  # torch types its stores in parts
    store = c10d._get_default_store()  # noqa: SLF001  there is no public name for it
    while isinstance(store, c10d.PrefixStore):
        store = store.underlying_store
    if isinstance(store, torch.distributed.TCPStore):  # type: ignore[attr-defined]
        return type(store)(store.host, store.port, is_master=False, wait_for_workers=False)
    return store
