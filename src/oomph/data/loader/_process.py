"""Worker processes for builders that hold the GIL.

A process that multiprocessing spawns imports the program that started it, with torch, and runs it again if it has no
`if __name__ == "__main__":`. A thin process is given the worker and nothing else.

Protocol, over a pipe: the worker sends () when it is ready. A request is (samples, epoch, offset in the shared buffers,
shape of a sample). The reply is a list of targets and BadSamples, or a `_Failure`.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import traceback
import weakref
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from ...errors import OomphError, UsageError
from ...units import MIB
from ._buffers import Bytes, SharedBuffers, map_shared
from ._sample_maker import BadSample, ByteSemaphore, PoolClosed, SampleMaker
from ._worker_pool import SampleFn

# glibc returns the memory of decoded images to the system each time, which takes longer than writing them, unless these
# thresholds are raised.
_MALLOC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": str(32 * MIB), "MALLOC_TRIM_THRESHOLD_": str(32 * MIB)}
_BOOTSTRAP = "import json,sys; sys.path[:]=json.loads(sys.argv[2]); from oomph.data.loader._process import main; main()"
_POLL_SECONDS = 2.0  # between checks that the other side is still alive
_MAX_DEATHS = 2  # worker processes that a sample may kill before it is skipped
_MAX_CHUNK = 16  # samples per message: every reply makes a thread take the GIL from the training


class RemoteError(Exception):
    """The traceback of an error in a worker process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class WorkerDied(Exception):
    """A worker process ended without a reply."""


class _Failure(NamedTuple):
    error: Exception
    traceback: str


class _ThinProcess:
    """A process that imports only the worker, with the methods of BaseProcess that are used here."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid
        self.kill = popen.kill

    @property
    def exitcode(self) -> int | None:
        return self._popen.poll()

    def join(self, timeout: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)

    def is_alive(self) -> bool:
        return self.exitcode is None


Process = BaseProcess | _ThinProcess


def _start_process(start_method: str, args: tuple[Any, ...]) -> tuple[Process, Connection]:
    """Start a process that calls `_serve(connection, *args)`, and return it with our end of the connection."""
    payload = pickle.dumps(args) if start_method == "spawn" and os.name == "posix" else None
    # Objects that are defined in the main program can only be unpickled by importing it.
    if payload is None or b"__main__" in payload:
        context: Any = multiprocessing.get_context(start_method)
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, *args), name="oomph-data", daemon=True)
        process.start()
        theirs.close()
        return process, ours
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        handle = theirs.fileno()
        command = [sys.executable, "-c", _BOOTSTRAP, str(handle), json.dumps(sys.path)]
        environment = {**_MALLOC_SETTINGS, **os.environ}
        popen = subprocess.Popen(command, pass_fds=(handle,), stdin=subprocess.DEVNULL, env=environment)  # noqa: S603
    ours.send_bytes(payload)
    return _ThinProcess(popen), ours


def main() -> None:
    """Run a thin process."""
    connection = Connection(int(sys.argv[1]))
    _serve(connection, *pickle.loads(connection.recv_bytes()))  # noqa: S301  sent by the process that started this one


def _serve(connection: Connection, maker: SampleMaker, path: str, parent: int) -> None:
    """Make samples into the shared buffers until the loader closes the connection or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader handles Ctrl-C
    memory = map_shared(path)
    try:
        connection.send(())
        while True:
            while not connection.poll(_POLL_SECONDS):
                if os.getppid() != parent:
                    return
            samples, epoch, offset, shape = connection.recv()
            size = len(samples) * math.prod(shape)
            canvas = memory[offset : offset + size].reshape(len(samples), *shape)
            connection.send_bytes(_reply(maker, samples, epoch, canvas))
    except (EOFError, OSError):
        return


def _reply(maker: SampleMaker, samples: list[int], epoch: int, canvas: Bytes) -> bytes:
    try:
        return pickle.dumps(maker.make_samples(samples, epoch, canvas))
    except Exception as error:  # noqa: BLE001  raised again in the process of the loader
        text = traceback.format_exc()
        try:
            failure = pickle.dumps(_Failure(error, text))
            pickle.loads(failure)  # noqa: S301  our own bytes
        except Exception:  # noqa: BLE001  depends on the class of the error
            failure = pickle.dumps(_Failure(RuntimeError(f"{type(error).__name__}: {error}"), text))
        return failure


class WorkerProcess:
    """A worker process and the pipe to it; driven by one thread of the loader."""

    def __init__(self, maker: SampleMaker, buffers: SharedBuffers, start_method: str) -> None:
        self._maker, self._buffers, self._start_method = maker, buffers, start_method
        self._running: tuple[Process, Connection] | None = None
        self._is_ready = self._dismissed = False

    @property
    def pid(self) -> int | None:
        """The process id; None if no process is running."""
        running = self._running
        return running[0].pid if running is not None else None

    def start(self) -> None:
        """Start the process without waiting until it is ready."""
        try:
            self._running = _start_process(self._start_method, (self._maker, self._buffers.path, os.getpid()))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"the sample builder can't be sent to a worker process ({error})",
                "define it at the top level of a module, or use threads",
            ) from None
        self._is_ready = False

    def make_samples(self, samples: list[int], epoch: int, canvas: Bytes, deaths: int = 0) -> list[Any]:
        """Make samples on the rows of a canvas; a process that dies is replaced.

        Returns the target of each sample, or a BadSample if it can't be made or kills its worker twice.
        """
        try:
            return self._request(samples, epoch, canvas)
        except WorkerDied as death:
            if len(samples) > 1:  # find out which sample it was
                rows = range(len(samples))
                return [self.make_samples([samples[row]], epoch, canvas[row : row + 1])[0] for row in rows]
            if deaths + 1 < _MAX_DEATHS:
                return self.make_samples(samples, epoch, canvas, deaths + 1)
            reason = f"it killed {_MAX_DEATHS} worker processes ({death})"
            return [BadSample(self._maker.image_of(samples[0]), reason)]

    def _request(self, samples: list[int], epoch: int, canvas: Bytes) -> list[Any]:
        process, pipe = self._ready_process()
        try:
            pipe.send((samples, epoch, self._buffers.offset(canvas), canvas.shape[1:]))
        except OSError:
            raise self._died(process) from None
        reply = self._receive(process, pipe)
        if isinstance(reply, _Failure):
            raise reply.error from RemoteError(reply.traceback)
        return list(reply)

    def _ready_process(self) -> tuple[Process, Connection]:
        if self._dismissed:
            raise PoolClosed
        if self._running is None:
            self.start()
        assert self._running is not None  # noqa: S101  started above
        process, pipe = self._running
        if not self._is_ready:
            try:
                self._receive(process, pipe)
            except WorkerDied as death:
                raise OomphError(
                    f"a worker process died while it was starting ({death})",
                    "read its output; a script that starts workers needs `if __name__ == '__main__':`",
                ) from None
            self._is_ready = True
        return process, pipe

    def _receive(self, process: Process, pipe: Connection) -> Any:
        try:
            # A dead process closes the pipe, unless a process that was forked meanwhile has inherited its other end.
            while process.is_alive():
                if pipe.poll(_POLL_SECONDS):
                    return pipe.recv()
            if pipe.poll():
                return pipe.recv()
        except (EOFError, OSError):
            pass
        raise self._died(process)

    def _died(self, process: Process) -> WorkerDied:
        process.join(1)
        cause = _exit_cause(process.exitcode)
        self.stop()
        return WorkerDied(cause)

    def stop(self) -> None:
        """End the process; the next request starts another one."""
        running, self._running = self._running, None
        if running is None:
            return
        process, pipe = running
        pipe.close()
        process.join(0.2)
        if process.is_alive():
            process.kill()
            process.join()

    def dismiss(self) -> None:
        """End the process for good."""
        self._dismissed = True
        self.stop()


def _exit_cause(exitcode: int | None) -> str:
    if exitcode is None:
        return "no reply"
    names = {number.value: number.name for number in signal.Signals}
    return f"exit code {exitcode}" if exitcode >= 0 else f"signal {names.get(-exitcode, -exitcode)}"


class ProcessWorkers:
    """A pool of worker processes, each driven by a thread. They live from the first pass until the loader is closed.

    With `limited`, samples wait for the byte budget. It is False if the samples of all workers fit the budget at once.
    """

    def __init__(
        self, count: int, maker: SampleMaker, buffers: SharedBuffers, start_method: str, *, limited: bool
    ) -> None:
        self._maker, self._limited = maker, limited
        self.max_chunk = 1 if limited else _MAX_CHUNK
        self.workers = [WorkerProcess(maker, buffers, start_method) for _ in range(count)]
        self._dismiss = weakref.finalize(self, _dismiss_all, self.workers)
        for worker in self.workers:
            worker.start()

    def sample_fns(self, epoch: int, semaphore: ByteSemaphore) -> list[SampleFn]:
        return [partial(self._make, worker, epoch, semaphore) for worker in self.workers]

    def _make(
        self, worker: WorkerProcess, epoch: int, semaphore: ByteSemaphore, samples: list[int], canvas: Bytes
    ) -> list[Any]:
        if not self._limited:
            return worker.make_samples(samples, epoch, canvas)
        (sample,) = samples  # max_chunk is 1
        try:
            needed = self._maker.sample_bytes(sample, epoch, (canvas.shape[2], canvas.shape[1]))
        except BadSample as bad:
            return [bad.with_traceback(None)]
        with semaphore.acquire(needed):
            return worker.make_samples(samples, epoch, canvas)

    def pids(self) -> list[int]:
        return [pid for worker in self.workers if (pid := worker.pid) is not None]

    def close(self) -> None:
        self._dismiss()


def _dismiss_all(workers: list[WorkerProcess]) -> None:
    for worker in workers:
        worker.dismiss()
