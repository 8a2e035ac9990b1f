"""Windows that were cut from one decoding and are not used yet."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from ..decoding import Picture, Window

Key = tuple[int, Window]


class Pool:
    """Pictures by image and window, at most so many bytes; each is handed out once.

    Threads that want windows of one image wait for the first of them to decode it.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held = 0
        self._pictures: OrderedDict[Key, Picture] = OrderedDict()
        self._busy: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Key, cut: Callable[[], Iterable[tuple[Key, Picture]]]) -> Picture:
        """A picture from the pool; else `cut` makes it and its siblings."""
        with self._lock:
            if key in self._pictures:
                return self._pop(key)
            busy = self._busy.setdefault(key[0], threading.Lock())
        with busy:
            with self._lock:
                if key in self._pictures:
                    return self._pop(key)
            (_, wanted), *others = cut()
            with self._lock:
                self._busy.pop(key[0], None)
                for sibling, picture in others:
                    self._keep(sibling, picture)
            return wanted

    def _pop(self, key: Key) -> Picture:
        picture = self._pictures.pop(key)
        self._held -= picture.pixels.nbytes
        return picture

    def _keep(self, key: Key, picture: Picture) -> None:
        size = picture.pixels.nbytes
        if size > self.capacity or key in self._pictures:
            return
        while self._held + size > self.capacity:
            self._pop(next(iter(self._pictures)))
        self._pictures[key] = picture
        self._held += size

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Pool, (self.capacity,)  # a worker's pool is its own and starts empty
