"""The commands to go on with a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ._run_data import RunData


@dataclass(frozen=True)
class Command:
    """A command, and what it is for."""

    purpose: str
    text: str


def next_commands(run: RunData, state: str) -> Iterator[Command]:
    """Yield the commands that make sense after a run."""
    weights = run.path / "weights"
    if run.is_folder and state in {"stopped", "killed", "failed"} and any(weights.glob("state*.pt")):
        ranks = len(run.ranks)
        launcher = f"torchrun --nproc-per-node {ranks} -m oomph" if ranks > 1 else "oomph"
        yield Command("Resume the run from its last checkpoint", f"{launcher} train --resume {_quoted(run.path)}")
    best = weights / "best.pt"
    if run.is_folder and state != "running" and best.is_file():
        size = f" --img {run.config['imgsz']}" if isinstance(run.config.get("imgsz"), int) else ""
        data = run.config.get("data")
        if isinstance(data, str):
            text = f"oomph val --weights {_quoted(best)} --data {_quoted(data)}{size}"
            yield Command("Score the best weights", text)
        yield Command("Detect objects in images", f"oomph detect --weights {_quoted(best)}{size} IMAGES")
    yield Command("Explain the Record in the terminal", f"oomph explain {_quoted(run.ranks[0].file)}")
    yield Command("Write this page again", f"oomph report {_quoted(run.path)}")


def _quoted(path: object) -> str:
    return shlex.quote(str(path))
