"""Trains on two ranks: `python -m tests.integrations.lightning_ranks plain|errors|stop|resume FOLDER`."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import torch

from oomph.errors import RetriesExhausted

from . import conftest  # noqa: F401  it declares torchvision's operators
from .forwards import Forwards


def train(kind: str, folder: Path) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DDPStrategy

    from oomph.integrations.lightning import GuardCallback

    from .modules import Classifier, loader

    torch.set_num_threads(1)
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="gloo", start_method="spawn"),
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, accumulate_grad_batches=2,
        default_root_dir=folder, callbacks=[Faults(kind, folder), *([] if kind == "plain" else [GuardCallback()])],
    )  # fmt: skip
    path = folder / "emergency.ckpt" if kind == "resume" else None
    trainer.fit(Classifier(optimizer="adam"), loader(count=48), ckpt_path=path)


def _callback_class() -> Any:
    import lightning.pytorch as pl

    return pl.Callback


class Faults(_callback_class()):  # type: ignore[misc]
    """Lets memory run out on the second rank only, and saves the weights at the end."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        failing = {"errors": (2, 5), "stop": (4,)}.get(self.kind, ())
        if trainer.global_rank == 1:
            pl_module.body[2].register_forward_pre_hook(Forwards(failing, from_then_on=self.kind == "stop"))

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            torch.save(pl_module.body.state_dict(), self.folder / f"{self.kind}.pt")
        if multiprocessing.parent_process() is not None:
            # A thread of gloo may abort a rank while Python ends (torch 2.13). Its results are sent before that.
            atexit.register(os._exit, 0)


if __name__ == "__main__":
    try:
        train(sys.argv[1], Path(sys.argv[2]))
    except Exception as error:
        if sys.argv[1] != "stop" or RetriesExhausted.__name__ not in f"{type(error)} {error}":
            raise
