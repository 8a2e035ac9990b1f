"""Worker processes for recipes that keep Python busy: thin, without torch, each driven by a thread of the loader."""

from __future__ import annotations

import math
import os
import pickle
import select
import signal
import traceback
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from ...errors import OomphError, UsageError
from ._admission import Closed
from ._maker import Maker, Spoiled
from ._process import Process, launch
from ._ring import Bytes
from ._slab import Slab, mapped

_LOOK = 2.0  # seconds after which an idle worker looks whether its parent is still there
_DEATHS = 2  # a sample that costs so many workers is set aside


class RemoteError(Exception):
    """The traceback of an error in a worker, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class WorkerDied(Exception):
    """A worker ended without an answer."""


def serve(connection: Connection, maker: Maker, path: str, parent: int) -> None:
    """What a worker does: make samples into the shared memory until the loader goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the loader's to answer
    memory = mapped(path)
    connection.send(())
    while True:
        try:
            while not connection.poll(_LOOK):
                if os.getppid() != parent:
                    return
            samples, epoch, start, shape = connection.recv()
        except (EOFError, OSError):
            return
        size = math.prod(shape)
        canvas = memory[start : start + len(samples) * size].reshape(len(samples), *shape)
        try:
            connection.send([_answer(maker, sample, epoch, canvas[at]) for at, sample in enumerate(samples)])
        except (EOFError, OSError):
            return


def _answer(maker: Maker, sample: int, epoch: int, canvas: Bytes) -> tuple[str, Any]:
    try:
        made = maker.make(sample, epoch, canvas)
        pickle.dumps(made)
    except Spoiled as spoiled:
        return "spoiled", (spoiled.image, spoiled.reason)
    except Exception as error:  # noqa: BLE001  it is raised in the loader's process
        text = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
        except Exception:  # noqa: BLE001  whatever its class does
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return "error", (error, text)
    return "made", made


class Worker:
    """One process and the pipe to it."""

    def __init__(self, maker: Maker, slab: Slab, start: str) -> None:
        self._maker, self._slab, self._start = maker, slab, start
        self._process: Process | None = None
        self._pipe: Connection | None = None
        self._dismissed = False
        self._comes: Callable[[float], bool] = bool  # of the pipe that there is

    def launch(self) -> None:
        """Start the process, without waiting for it."""
        try:
            process, ours = launch(self._start, serve, (self._maker, self._slab.path, os.getpid()))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"the recipe can't be sent to a worker process ({error})",
                "define it at the top of a module, or use threads",
            ) from None
        self._process, self._pipe, self._comes = process, ours, _watch(ours)
        self._expect_ready = True

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""
        process = self._process
        return process.pid if process is not None else None

    def _ready(self) -> tuple[Process, Connection]:
        if self._dismissed:
            raise Closed
        if self._process is None:
            self.launch()
        process, pipe = self._process, self._pipe
        assert process is not None  # noqa: S101  launched above
        assert pipe is not None  # noqa: S101
        if self._expect_ready:
            try:
                self._receive(process, pipe)
            except WorkerDied as died:
                raise OomphError(
                    f"a worker process died while it started ({died})",
                    "look at what it printed; a script that starts workers needs `if __name__ == '__main__':`",
                ) from None
            self._expect_ready = False
        return process, pipe

    def ask(self, sample: int, epoch: int, canvas: Bytes) -> Any:
        """Have a sample made; a worker that dies is replaced once.

        Raises:
            Spoiled: one of its images can't be used, or it costs worker after worker.
        """
        said = ""
        for _ in range(_DEATHS):
            try:
                answer = self._answers([sample], epoch, canvas[None])[0]
            except WorkerDied as died:
                said = str(died)
                continue
            if isinstance(answer, Spoiled):
                raise answer
            return answer
        raise Spoiled(self._maker.image_of(sample), f"{_DEATHS} worker processes died of it ({said})")

    def ask_all(self, samples: list[int], epoch: int, canvas: Bytes) -> list[Any]:
        """Have several samples made in one go; a Spoiled in the place of one that can't be."""
        try:
            return self._answers(samples, epoch, canvas)
        except WorkerDied:
            return [self._ask_alone(sample, epoch, canvas[at]) for at, sample in enumerate(samples)]

    def _ask_alone(self, sample: int, epoch: int, canvas: Bytes) -> Any:
        try:
            return self.ask(sample, epoch, canvas)
        except Spoiled as spoiled:
            return spoiled

    def _answers(self, samples: list[int], epoch: int, canvas: Bytes) -> list[Any]:
        process, pipe = self._ready()
        try:
            try:
                pipe.send((samples, epoch, self._slab.offset(canvas), canvas.shape[1:]))
            except OSError:
                process.join(1)
                raise WorkerDied(_how(process)) from None
            return [_understood(kind, content) for kind, content in self._receive(process, pipe)]
        except WorkerDied:
            self.close()
            raise

    def _receive(self, process: Process, pipe: Connection) -> Sequence[tuple[str, Any]]:
        alive = True
        try:
            # Its death closes the pipe, unless a process that was forked meanwhile holds the other end too.
            while alive and not self._comes(_LOOK):
                alive = process.is_alive()
            if alive or pipe.poll():
                answers: Sequence[tuple[str, Any]] = pipe.recv()
                return answers
        except (EOFError, OSError):
            pass
        process.join(1)
        raise WorkerDied(_how(process))

    def dismiss(self) -> None:
        """End the process for good."""
        self._dismissed = True
        self.close()

    def close(self) -> None:
        """End the process; the next sample gets another one."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.join(0.2)
            if process.is_alive():
                process.kill()
                process.join()


def _watch(pipe: Connection) -> Callable[[float], bool]:
    """Tells whether something comes within seconds: by one poller, where `Connection.poll` makes one each time."""
    if not hasattr(select, "poll"):
        return pipe.poll
    poller = select.poll()
    poller.register(pipe.fileno(), select.POLLIN)
    return lambda seconds: bool(poller.poll(seconds * 1000))


def _understood(kind: str, content: Any) -> Any:
    """What a worker made, or the Spoiled that it met; its errors are raised here."""
    if kind == "spoiled":
        return Spoiled(*content)
    if kind == "error":
        error, text = content
        raise error from RemoteError(text)
    return content


def _how(process: Process) -> str:
    code = process.exitcode
    if code is None:
        return "it gave no answer"
    if code < 0:
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


class Crew:
    """All workers of a loader; they live from its first pass to its end."""

    def __init__(self, count: int, maker: Maker, slab: Slab, start: str) -> None:
        self.workers = [Worker(maker, slab, start) for _ in range(count)]
        self._slab = slab
        for worker in self.workers:
            worker.launch()
        self._finish = weakref.finalize(self, _dismiss, self.workers, slab)

    def pids(self) -> list[int]:
        """The processes that are there."""
        return [number for worker in self.workers if (number := worker.pid) is not None]

    def close(self) -> None:
        """End all processes and remove the shared memory."""
        self._finish()


def _dismiss(workers: list[Worker], slab: Slab) -> None:
    for worker in workers:
        worker.dismiss()
    slab.close()
