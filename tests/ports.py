"""Ports for processes that a test starts."""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 20_000, 30_000  # below the ports that the system gives to connections and to whoever asks for any port


def free_port() -> int:
    """Return a port that is free and stays so: one of those that the system gives away may be taken before its use."""
    numbers = random.SystemRandom()
    while True:
        port = numbers.randrange(_FIRST, _LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
