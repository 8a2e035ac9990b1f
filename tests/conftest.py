"""What every test needs of its process."""

from __future__ import annotations

import signal
import threading

# A process that was started in the background of a shell ignores Ctrl-C, and so would every process that tests start
# to interrupt it. A handler of our own is not inherited: they begin with the system's.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
