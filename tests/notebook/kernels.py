"""A real Jupyter kernel in a process of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

_TIMEOUT_SECONDS = 240


@dataclass
class CellOutput:
    """What a cell sent to the notebook.

    Attributes:
        text: standard output and standard error.
        data: the result and what was displayed, by MIME type; later ones replace earlier ones.
        error: the class of its exception; empty if there was none.
        traceback: the lines of the traceback.
        messages: number of messages with output.
    """

    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    traceback: list[str] = field(default_factory=list)
    messages: int = 0


class Kernel:
    """Runs cells."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client: Any = client

    def run(self, code: str, on_text: Callable[[str], None] = lambda _: None) -> CellOutput:
        """Run a cell until it is idle, and return its output; `on_text` is called with output as it comes."""
        output = CellOutput()

        def receive(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind not in {"stream", "error", "display_data", "execute_result", "update_display_data"}:
                return
            output.messages += 1
            if kind == "stream":
                output.text += content["text"]
                on_text(content["text"])
            elif kind == "error":
                output.error, output.traceback = content["ename"], content["traceback"]
            else:
                output.data.update(content["data"])

        self._client.execute_interactive(code, output_hook=receive, stop_on_error=False, timeout=_TIMEOUT_SECONDS)
        return output


@contextlib.contextmanager
def start_kernel(folder: Path) -> Iterator[Kernel]:
    """Start a kernel in a folder."""
    manager: Any = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(folder), env=dict(os.environ))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=_TIMEOUT_SECONDS)
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        manager.context.term()
