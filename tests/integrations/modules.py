"""LightningModules, data and callbacks for the tests of Lightning; importing this file imports lightning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as pl
import torch
import torchmetrics
from lightning.pytorch.loggers.logger import Logger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(pl.LightningModule):  # type: ignore[misc]
    """Logs in all the ways that there are, and returns what `outputs` says: "loss", "dict" or "none" now and then."""

    def __init__(self, outputs: str = "loss", dtype: torch.dtype = torch.float64, optimizer: str = "sgd") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)
        self.outputs, self.optimizer = outputs, optimizer
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=4)
        self.predictions = torchmetrics.CatMetric()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        logits = self(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("sized", logits.square().mean(), on_epoch=True, batch_size=len(x))
        self.log("constant", logits.mean(), on_step=True, on_epoch=True, batch_size=6)
        self.log("correct", (logits.argmax(1) == y).double().sum(), on_step=True, on_epoch=True, reduce_fx="sum")
        self.log("largest", logits.detach().max(), on_step=True, on_epoch=True, reduce_fx="max")
        self.accuracy(logits, y)
        self.log("accuracy", self.accuracy, on_step=True, on_epoch=True)
        self.predictions.update(logits.argmax(1).double())
        if self.outputs == "none" and batch_idx % 2:
            return None
        return {"loss": loss, "logits": logits, "mean": logits.mean()} if self.outputs == "dict" else loss

    def on_train_epoch_end(self) -> None:
        self.log("predictions", self.predictions.compute().sum())
        self.predictions.reset()

    def configure_optimizers(self) -> Any:
        if self.optimizer == "adam":
            return torch.optim.Adam(self.parameters(), lr=1e-2, eps=1e-3)
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Calls(pl.Callback):  # type: ignore[misc]
    """Remembers which hooks were called in which update, with losses and batch numbers, and outputs."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.outputs: list[Any] = []


def _hook(name: str) -> Callable[..., None]:
    def remember(self: Calls, trainer: Any, _: Any, *arguments: Any) -> None:
        shown = [f"{float(item):.9f}" if isinstance(item, Tensor) else item for item in arguments]
        self.calls.append((name, trainer.global_step, *(item for item in shown if isinstance(item, (int, str)))))
        if name == "on_train_batch_end":
            self.outputs.append(arguments[0])

    return remember


for _name in ("zero_grad", "backward", "optimizer_step"):
    setattr(Calls, f"on_before_{_name}", _hook(f"on_before_{_name}"))
for _name in ("on_after_backward", "on_train_batch_start", "on_train_batch_end"):
    setattr(Calls, _name, _hook(_name))


class Values(Logger):  # type: ignore[misc]
    """A logger that keeps everything."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int | None, dict[str, float]]] = []

    name, version = "values", 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Ignore them."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.lines.append((step, dict(metrics)))


class StatefulLoader(DataLoader):  # type: ignore[type-arg]
    """A loader without shuffling that says where it is, so that Lightning can resume within an epoch."""

    position = start = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        start, self.start = self.start, 0
        self.position = start
        for number, batch in enumerate(super().__iter__()):
            if number >= start:
                self.position = number + 1
                yield batch

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = self.position = state["position"] % len(self)  # Lightning loads that of an epoch's end, too


def loader(dtype: torch.dtype = torch.float64, *, count: int = 34, batch: int = 6) -> StatefulLoader:
    """Return a loader whose last batch is smaller."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 8, generator=generator, dtype=dtype)
    y = torch.randint(0, 4, (count,), generator=generator)
    return StatefulLoader(TensorDataset(x, y), batch_size=batch)
