"""Train on the embedded data set with one process and with two ranks, one of which runs out of memory on the way.

    python benchmarks/ranks.py --seeds 0 1 2 --out ranks.json

Both ways train with the same seeds and the same batch, side by side in processes of one thread; how far their mAP is
apart says something only beside how far seeds are apart.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
from oomph.detect import EmbeddedRun, OrderForm, join_ranks, train, write_embedded
from oomph.planner import Plan

UNLUCKY = 1
WHEN = 13_000  # convolutions: in the fifth of 15 epochs


class Silent:
    """Is told how a run goes, and tells nobody."""

    def said(self, words: str) -> None:
        """A sentence."""

    def counted(self, what: str, done: int, total: int | None) -> None:
        """Files are read."""

    def planned(self, made: Plan) -> None:
        """The plan is made."""

    def stepped(self, epoch: int, done: int, total: int, facts: dict[str, Any]) -> None:
        """A step is done."""

    def ended_epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""


def break_once() -> None:
    """Have one layer run out of memory, once."""
    calls = 0

    def hook(module: nn.Module, _: Any, output: Any) -> None:
        nonlocal calls
        if isinstance(module, nn.Conv2d) and module.training and type(output) is torch.Tensor:  # and no fake one
            calls += 1
            if calls == WHEN:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    register_module_forward_hook(hook)


def child(folder: Path, seed: int) -> None:
    """One run, or one rank of it; the first one prints how it went."""
    torch.set_num_threads(1)
    course = EmbeddedRun()
    form = OrderForm(
        data=folder / "data" / "data.yaml",
        folder=folder / f"{os.environ.get('WORLD_SIZE', 'alone')}-{seed}",
        network=course.network,
        size=course.size,
        batch=course.batch,
        epochs=course.epochs,
        seed=seed,
        recipe=course.recipe,
        device="cpu",
        threads=1,
        every=course.every,
    )
    began = time.perf_counter()
    with join_ranks("cpu") as ranks:
        if ranks.rank == UNLUCKY:
            break_once()
        done = train(form, Silent(), ranks=ranks)
        retries = ranks.collect({"retries": done.retries})
    if ranks.is_first:
        best = done.best or {}
        scores = {name: round(best[name], 4) for name in ("map50", "map50_95")}
        seconds = round(time.perf_counter() - began)
        print(json.dumps({"ranks": ranks.ranks, "seed": seed, **scores, "seconds": seconds, "retries": retries}))


def start(folder: Path, ranks: int, seed: int) -> subprocess.Popen[str]:
    """A run in processes of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), __file__, "--child", str(folder), "--seed", str(seed)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def main() -> None:
    """Run both ways with every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--beside", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child, given.seed)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_embedded(folder / "data")
        asked = [(ranks, seed) for seed in given.seeds for ranks in (2, 1)]
        while asked:
            now, asked = asked[: given.beside], asked[given.beside :]
            for process in [start(folder, *one) for one in now]:
                said = process.communicate()[0]
                rows += [json.loads(line) for line in said.splitlines() if line.startswith("{")]
                print(rows[-1] if rows else f"no answer: {said}", flush=True)
    found: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version(), "runs": rows}
    for ranks in (1, 2):
        own = [row["map50"] for row in rows if row["ranks"] == ranks]
        found[f"map50 of {ranks}"] = {"mean": statistics.mean(own), "apart": max(own) - min(own)} if own else None
    print(json.dumps({name: value for name, value in found.items() if name != "runs"}))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
