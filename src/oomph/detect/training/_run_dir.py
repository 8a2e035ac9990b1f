"""The run directory: checkpoints, weights, results.csv and plots, each written atomically."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...charts import try_draw
from ...data import ImageIndex
from ...errors import InvalidFile, MissingFile, OomphError, UsageError
from ...files import write_atomically
from ..checkpoint import open_checkpoint, read_checkpoint, save_weights
from ..dataset import Pixels
from ..metrics import ImageResult, Scores, write_results
from ..plots import image_png, memory_plot, prediction_grid, results_plot, validation_plots
from ._plot_queue import PlotQueue
from ._train_loss import DISTILL_PART, LOSS_PARTS

_log = logging.getLogger("oomph")
_RESULT_COLUMNS = (  # after the losses
    "map50",
    "map50_95",
    "map_small",
    "map_medium",
    "map_large",
    "precision",
    "recall",
    "lr",
    "images_per_second",
    "micro_batches",
    "peak_bytes",
)
_STATE_FILES = ("state.pt", "state-previous.pt")
_STATE_FORMAT, _STATE_VERSION = "oomph training", 3
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}
_MAX_REASON = 80


def has_state(folder: Path) -> bool:
    """Return True if a run directory has a checkpoint to resume from."""
    return any((folder / "weights" / name).is_file() for name in _STATE_FILES)


class RunDirectory:
    """Writes the files of a run. A full disk costs a warning and the new file, never an existing one.

    Raises:
        UsageError: the folder isn't writable.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weights = folder / "weights"
        self._plots = PlotQueue(self.save_plot)
        try:
            self.weights.mkdir(parents=True, exist_ok=True)
            for path in (folder, self.weights):
                _check_writable(path)
        except OSError as error:
            why = f"{str(folder)!r} is not writable ({error.strerror})"
            raise UsageError(why, "make it writable, or start the run in another folder") from None

    @property
    def state_file(self) -> Path:
        """The latest checkpoint."""
        return self.weights / _STATE_FILES[0]

    @property
    def previous_state_file(self) -> Path:
        """The previous checkpoint, used if the latest is damaged."""
        return self.weights / _STATE_FILES[1]

    @property
    def record_file(self) -> Path:
        """The Record of the run."""
        return self.folder / "record.jsonl"

    def save_state(self, state: dict[str, Any]) -> None:
        """Write a checkpoint; the current one becomes the previous one."""
        content = {"format": _STATE_FORMAT, "version": _STATE_VERSION, **state}

        def write() -> None:
            if self.state_file.exists():
                self._keep_previous_state()
            write_atomically(self.state_file, lambda file: torch.save(content, file))

        self._try_write("the checkpoint", write)

    def _keep_previous_state(self) -> None:
        try:
            self.previous_state_file.unlink(missing_ok=True)
            self.previous_state_file.hardlink_to(self.state_file)
        except OSError:  # exFAT, SMB and others have no hard links
            with contextlib.suppress(OSError):  # the new checkpoint matters more than the previous one
                shutil.copyfile(self.state_file, self.previous_state_file)

    def load_state(self) -> dict[str, Any]:
        """Read the latest intact checkpoint, with a warning if it is the previous one.

        Raises:
            MissingFile: there is no checkpoint.
            InvalidFile: none can be read.
        """
        failures = []
        for path in (self.state_file, self.previous_state_file):
            try:
                state = _read_state(path)
            except MissingFile:
                continue
            except Exception as error:  # noqa: BLE001  for any reason, the previous checkpoint may be intact
                failures.append(f"{path.name}: {_reason(error)}")
                continue
            if path == self.previous_state_file:
                why = failures[0] if failures else f"{self.state_file.name} is missing"
                _log.warning("%s. Resuming from the previous checkpoint, %s.", why, path.name)
            return state
        if failures:
            raise InvalidFile(f"no checkpoint in {self.weights} can be read ({'; '.join(failures)})", "start a new run")
        raise MissingFile(f"there is no checkpoint in {self.weights}", "pass the folder of a run, or start a new one")

    def save_model(self, name: str, model: nn.Module, names: Sequence[str], extra: dict[str, Any]) -> None:
        """Write weights as `best.pt` or `last.pt`."""
        self._try_write(f"{name}.pt", lambda: save_weights(self.weights / f"{name}.pt", model, names, extra))

    def saved_epoch(self, name: str) -> int | None:
        """Return the epoch of the weights in `best.pt` or `last.pt`; None if there is no such file."""
        try:
            with open_checkpoint(self.weights / f"{name}.pt") as checkpoint:
                return int(checkpoint.content["extra"]["epoch"])
        except (OomphError, LookupError, TypeError, ValueError):
            return None

    def save_results(self, rows: Sequence[dict[str, Any]], predicted_bytes: int, budget_bytes: int) -> None:
        """Rewrite results.csv and the plots of its columns.

        Args:
            rows: one for each epoch so far.
            predicted_bytes: the memory that the plan predicts.
            budget_bytes: the memory that the plan may use.
        """
        parts = [part for part in (*LOSS_PARTS, DISTILL_PART) if part in rows[0]]
        columns = ("epoch", "loss", *parts, *_RESULT_COLUMNS)
        lines = [",".join(columns), *(",".join(_cell(row.get(name)) for name in columns) for row in rows)]
        self.save_text("results.csv", "\n".join(lines) + "\n")
        self._plots.add("results.png", partial(results_plot, tuple(rows)))
        self._plots.add("memory.png", partial(memory_plot, tuple(rows), predicted_bytes, budget_bytes))
        self._plots.draw()

    def save_predictions(
        self, results: Mapping[int, ImageResult], index: ImageIndex, names: Sequence[str], *, grid: bool = True
    ) -> None:
        """Write the predictions of validation images, keyed by image number, and a grid of the first ones."""
        path = self.folder / "predictions.npz"
        self._try_write(path.name, lambda: write_results(path, list(results.values()), names))
        if grid:
            self.save_image("val_predictions", prediction_grid(index, results, names))

    def save_scores(self, results: Sequence[ImageResult], scores: Scores, names: Sequence[str]) -> None:
        """Draw curves and the confusion matrix of a validation, with the next results or at the end of the run."""
        for name, draw in validation_plots(results, scores, names).items():
            self._plots.add(name, draw)

    def draw_plots(self) -> None:
        """Draw the plots that are still waiting."""
        self._plots.draw(at_once=True)

    def save_plot(self, name: str, draw: Callable[[], bytes]) -> None:
        """Draw a plot and write it as PNG; a failure costs a warning and the plot."""
        content = try_draw(name, draw, lambda message: _log.warning("%s Training continues.", message))
        if content is not None:
            self.save_bytes(name, content)

    def save_image(self, name: str, pixels: Pixels) -> None:
        """Write an image as PNG."""
        self.save_bytes(f"{name}.png", image_png(pixels))

    def save_json(self, name: str, value: dict[str, Any]) -> None:
        """Write plain values as JSON."""
        self.save_text(name, json.dumps(value, indent=1, default=str) + "\n")

    def save_text(self, name: str, text: str) -> None:
        """Write a text file."""
        self.save_bytes(name, text.encode())

    def save_bytes(self, name: str, content: bytes) -> None:
        """Write a file."""
        self._try_write(name, lambda: write_atomically(self.folder / name, lambda file: file.write(content)))

    def _try_write(self, name: str, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            with contextlib.suppress(OSError):
                _log.warning("%s could not be written: %s. Training continues.", name, error.strerror or error)


class ReadOnlyRunDirectory(RunDirectory):
    """Run directory of ranks > 0: read-only except for their Record."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__(folder)
        self._rank = rank

    @property
    def record_file(self) -> Path:
        """The Record of this rank."""
        return self.folder / f"record-{self._rank}.jsonl"

    def save_results(self, rows: Sequence[dict[str, Any]], predicted_bytes: int, budget_bytes: int) -> None:
        """Do nothing."""

    def save_predictions(
        self, results: Mapping[int, ImageResult], index: ImageIndex, names: Sequence[str], *, grid: bool = True
    ) -> None:
        """Do nothing."""

    def save_plot(self, name: str, draw: Callable[[], bytes]) -> None:
        """Do nothing."""

    def _try_write(self, name: str, write: Callable[[], None]) -> None:
        pass


def _check_writable(folder: Path) -> None:
    """Create and remove a file. A full disk is tolerated: it may have space later.

    Raises:
        OSError: files may not be created there.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno in _NOT_WRITABLE:
            raise


def _read_state(path: Path) -> dict[str, Any]:
    state = read_checkpoint(path)
    expected = (_STATE_FORMAT, _STATE_VERSION)
    if not isinstance(state, dict) or (state.get("format"), state.get("version")) != expected:
        raise InvalidFile("not a checkpoint of this version of oomph", "use another one")
    return state


def _reason(error: Exception) -> str:
    text = error.why if isinstance(error, OomphError) else str(error)
    return " ".join(text.split())[:_MAX_REASON]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
