"""The connection to a Ray cluster, or to a Ray of its own on this machine; needs the extra `oomph[ray]`."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...errors import UsageError, shorten
from ...units import MIB

_OBJECT_STORE = 80 * MIB  # nearly Ray's minimum: results are small, and its default is a third of the RAM
_CONNECT_SECONDS = 10.0
_MAX_ERROR = 200  # characters


@contextlib.contextmanager
def connect_to_ray(jobs: int | None) -> Iterator[Any]:
    """Connect to a cluster or start a local Ray, unless this process has one; undo it at the end."""
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # what matters comes as an exception
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a local Ray would send statistics to its makers
    quiet = {"log_to_driver": False, "configure_logging": False}
    with _keep_sigterm_handler():
        try:
            # Where there is a cluster, Ray refuses the arguments of a new one.
            ray.init(num_cpus=jobs, object_store_memory=_OBJECT_STORE, include_dashboard=False, **quiet)
        except ValueError:
            _init_cluster(ray, quiet)
    try:
        yield ray
    finally:
        ray.shutdown()


def _import_ray() -> Any:
    name = "RAY_DEDUP_LOGS_SKIP_REGEX"
    before = os.environ.get(name)
    # Ray reads it when it is imported; its messages about dead workers would mix with the output on stdout.
    os.environ[name] = ".*"
    try:
        import ray  # noqa: PLC0415  an extra
        import ray.exceptions  # noqa: PLC0415
    except ImportError:
        raise UsageError("--on ray needs the package ray", "pip install 'oomph[ray]'") from None
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
    return ray


def _init_cluster(ray: Any, quiet: Mapping[str, bool]) -> None:
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        _check_port(address)
        ray.init(**quiet)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the Ray cluster {address or 'of `ray start`'} can't be reached ({shorten(str(error), _MAX_ERROR)})",
            "start it, or set RAY_ADDRESS=local to run on this machine",
        ) from None


def _check_port(address: str) -> None:
    """Raise an OSError at once if nobody listens; Ray would try for many minutes."""
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()


@contextlib.contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Restore the handler of SIGTERM, which `ray.init` replaces in the main thread."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def largest_memory(nodes: Iterable[Mapping[str, Any]], gpus: float) -> int:
    """Return the memory in bytes of the largest machine that can run a cell.

    Raises:
        UsageError: no machine has that many GPUs, and Ray would wait forever.
    """
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    sizes = [node.get("memory", 0) for node in resources if node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= 1]
    if not sizes:
        most = max((node.get("GPU", 0) for node in resources), default=0)
        raise UsageError(
            f"a cell needs {gpus:g} GPUs, and the machines of the Ray cluster have at most {most:g}",
            "ask for a smaller share, such as --on ray:0.5",
        )
    return int(max(sizes))
