"""Charts of epochs: losses, mAP and learning rate, from results.csv."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ._chart import Chart
from ._run_data import RunData
from ._series import Series
from ._step_charts import loss_charts

_LOSSES = ("loss", "box_loss", "obj_loss", "cls_loss", "distill_loss")
_SCORES = (("map50_95", "mAP50-95"), ("map50", "mAP50"), ("precision", "precision"), ("recall", "recall"))
_FITNESS_WEIGHTS = (("map50", 0.1), ("map50_95", 0.9))  # as in YOLOv5


def training_charts(runs: Sequence[RunData]) -> Iterator[Chart]:
    """Yield the charts of epochs; of steps for runs that have no results.csv."""
    with_epochs = [(number, run) for number, run in enumerate(runs) if run.epochs]
    if not with_epochs:
        yield from loss_charts(runs)
        return
    compared = len(runs) > 1
    losses = [(name, name.replace("_", " ")) for name in _LOSSES[: 1 if compared else None]]
    scores = _SCORES[: 1 if compared else None]
    yield from _chart(with_epochs, "loss", "Training loss, mean of each epoch", losses, compared=compared)
    yield from _chart(with_epochs, "map", "Scores on the validation images", scores, compared=compared)
    yield from _chart(with_epochs, "lr", "Learning rate", [("lr", "learning rate")], compared=compared)
    speed = [("images_per_second", "images per second")]
    yield from _chart(with_epochs, "speed", "Training speed", speed, compared=compared)


def _chart(
    runs: Sequence[tuple[int, RunData]], name: str, title: str, columns: Sequence[tuple[str, str]], *, compared: bool
) -> Iterator[Chart]:
    series = []
    for number, run in runs:
        for index, (column, label) in enumerate(columns):
            rows = [row for row in run.epochs if column in row]
            if rows:
                epochs, values = [row["epoch"] for row in rows], [row[column] for row in rows]
                text, group = (f"{run.name}: {label}", number) if compared else (label, index)
                series.append(Series(text, epochs, values, group=group))
    if series:
        yield Chart(name, title, "", tuple(series), by_epoch=True)


def best_epoch(run: RunData) -> Mapping[str, float] | None:
    """Return the row of the best epoch, the first of equals; None if nothing was scored."""
    scored = [row for row in run.epochs if all(name in row for name, _ in _FITNESS_WEIGHTS)]
    return max(scored, key=lambda row: sum(weight * row[name] for name, weight in _FITNESS_WEIGHTS), default=None)
