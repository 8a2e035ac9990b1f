"""Heartbeats between ranks, so that no rank waits forever for one that is gone."""

from __future__ import annotations

import atexit
import contextlib
import itertools
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
_BEAT_SECONDS = 1.0
_GRACE_SECONDS = 4.0  # for a rank to stop by itself once a reason is known
_CLOSED = "closed"  # the last heartbeat of a rank that ended normally
_guard_numbers = itertools.count(1)  # every rank creates its guards in the same order


class Watchdog:
    """A thread that sends heartbeats to the other ranks and ends this process when another rank is gone.

    A rank that waits in a collective can't be woken by an exception. When a reason to stop is known and the rank hasn't
    stopped by itself after some seconds, the thread ends the process with that reason.

    Args:
        rank: the rank of this process.
        world_size: number of ranks.
        timeout: seconds without a heartbeat after which a rank counts as dead.
        recorder: records the reason.
    """

    def __init__(self, rank: int, world_size: int, timeout: float, recorder: Recorder | None) -> None:
        self._rank, self._world_size, self._timeout, self._recorder = rank, world_size, timeout, recorder
        self._name = f"oomph-guard-{next(_guard_numbers)}"
        self._store = _connect_to_store()
        self._stopped = threading.Event()
        self._reason: str | None = None
        self.is_stopping = False  # this rank ends by itself, so the thread doesn't end it
        self.busy = False  # this rank is inside a step, where it may wait for the others
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._store.set(self._key("beat", rank), "0")
        if rank == 0:
            self._store.set(self._key("reason"), "")

    def start(self) -> None:
        """Start the thread, once every rank has created its watchdog."""
        self._thread.start()
        atexit.register(self.close)

    def announce_failure(self, reason: str) -> None:
        """Tell the other ranks why this one stops; the first reason counts."""
        self.is_stopping = True
        text = f"rank {self._rank}: {' '.join(reason.split()).rstrip('.')}"
        try:
            self._store.compare_set(self._key("reason"), "", text)
        except (RuntimeError, OSError):
            _log.debug("the store is gone")  # the other ranks are too, or will notice

    def reason(self, default: str) -> str:
        """Return why another rank is gone, after a collective with it failed; this rank then stops by itself."""
        until = time.monotonic() + 2 * _BEAT_SECONDS
        while self._reason is None and time.monotonic() < until:
            time.sleep(0.05)  # the reason may be on its way
        self.is_stopping = True
        return self._reason or f"another rank is gone ({default})"

    def close(self) -> None:
        """Stop the thread and tell the other ranks that this one ended normally."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join(2 * _BEAT_SECONDS)
        with contextlib.suppress(RuntimeError, OSError):
            self._store.set(self._key("beat", self._rank), _CLOSED)

    def _key(self, name: str, rank: int | None = None) -> str:
        return f"{self._name}/{name}" if rank is None else f"{self._name}/{name}/{rank}"

    def _run(self) -> None:
        others = [rank for rank in range(self._world_size) if rank != self._rank]
        keys = [self._key("reason"), *(self._key("beat", rank) for rank in others)]
        last_beats = {rank: (b"", time.monotonic()) for rank in others}
        for beat in itertools.count(1):
            if self._stopped.wait(_BEAT_SECONDS):
                return
            try:
                self._store.set(self._key("beat", self._rank), str(beat))
                reason, *beats = self._store.multi_get(keys)
            except (RuntimeError, OSError):
                # Rank 0 may have ended normally, unless this rank is waiting for it.
                self._end("rank 0, which hosts the store, is gone", only_if_busy=True)
                return
            now = time.monotonic()
            for rank, value in zip(others, beats, strict=True):
                if value != last_beats[rank][0]:
                    last_beats[rank] = (value, now)
            if reason:
                self._end(reason.decode())
                return
            if self._end_if_silent(last_beats, now):
                return

    def _end_if_silent(self, last_beats: dict[int, tuple[bytes, float]], now: float) -> bool:
        silent = [rank for rank, (_, seen_at) in last_beats.items() if now - seen_at > self._timeout]
        closed = [rank for rank in silent if last_beats[rank][0] == _CLOSED.encode()]
        dead = [rank for rank in silent if rank not in closed]
        if dead:
            self._end(f"rank {dead[0]} sent no heartbeat for {self._timeout:.0f} s")
        elif closed and self.busy:
            self._end(f"rank {closed[0]} ended before this one", only_if_busy=True)
        return bool(dead or (closed and self.busy))

    def _end(self, reason: str, *, only_if_busy: bool = False) -> None:
        """Let this rank stop by itself, or end its process."""
        self._reason = reason
        if self._stopped.wait(_GRACE_SECONDS) or self.is_stopping or (only_if_busy and not self.busy):
            return
        message = f"oomph: rank {self._rank} stops: {reason}"
        print(message, file=sys.stderr, flush=True)  # noqa: T201  the main thread hangs in a collective
        if self._recorder is not None:
            self._recorder.event("error", error="RankLost", text=reason)
        os._exit(1)


def _connect_to_store() -> Any:
    """Open another connection to the run's store: a wait in another thread would block a shared one."""
    c10d: Any = distributed_c10d  # its stores are only partly typed
    store = c10d._get_default_store()  # noqa: SLF001  no public name
    while isinstance(store, c10d.PrefixStore):
        store = store.underlying_store
    if isinstance(store, torch.distributed.TCPStore):  # type: ignore[attr-defined]
        return type(store)(store.host, store.port, is_master=False, wait_for_workers=False)
    return store
