"""The folder of a run: checkpoints, weights, results.csv, plots. What is there is whole."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from ...data import ImageIndex
from ...errors import InvalidFile, MissingFile, OomphError, UsageError
from ...files import write_atomically
from ...units import GIB
from ..checkpoint._safe_unpickle import open_inert
from ..checkpoint._weights import save_weights
from ..metrics._image_result import write_results
from ..metrics._scores import ImageResult, Scores
from ..plots._charts import Chart, curves, draw_chart, precision_recall
from ..plots._grids import found_sheet
from ._train_loss import PARTS

_log = logging.getLogger("oomph")
COLUMNS = (
    "epoch",
    "loss",
    *PARTS,
    "map50",
    "map50_95",
    "precision",
    "recall",
    "rate",
    "images_per_second",
    "micro_batches",
    "memory",
)
STATES = ("state.pt", "state-before.pt")  # what a resumed run goes on from, the newer one first
_STATE, _VERSION = "oomph training", 2
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class Keeper:
    """Writes the folder of a run. A full disk costs a warning and the newest file, never what was there.

    Raises:
        UsageError: nothing may be written there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weights = folder / "weights"
        try:
            self.weights.mkdir(parents=True, exist_ok=True)
            for place in (folder, self.weights):
                _try_file(place)
        except OSError as error:
            why = f"nothing can be written into {str(folder)!r} ({error.strerror})"
            raise UsageError(why, "make it writable, or begin where you may write") from None

    @property
    def state_file(self) -> Path:
        """What a resumed run goes on from."""
        return self.weights / STATES[0]

    @property
    def before_file(self) -> Path:
        """What it goes on from where that is damaged."""
        return self.weights / STATES[1]

    @property
    def record_file(self) -> Path:
        """The Record of the run."""
        return self.folder / "record.jsonl"

    def save_state(self, state: dict[str, Any]) -> None:
        """Keep everything that a resumed run needs; the one before stays as `state-before.pt`."""
        document = {"format": _STATE, "version": _VERSION, **state}

        def write() -> None:
            if self.state_file.exists():
                self._keep_before()
            write_atomically(self.state_file, lambda file: torch.save(document, file))

        self._try("the checkpoint", write)

    def _keep_before(self) -> None:
        try:
            self.before_file.unlink(missing_ok=True)
            self.before_file.hardlink_to(self.state_file)
        except OSError:  # exFAT, SMB and others have no such links; without a copy too, the new state is worth more
            with contextlib.suppress(OSError):
                shutil.copyfile(self.state_file, self.before_file)

    def load_state(self) -> dict[str, Any]:
        """The newest state that is whole; where that is the one before, it is said.

        Raises:
            MissingFile: there is none.
            InvalidFile: none of them can be read.
        """
        faults = []
        for path in (self.state_file, self.before_file):
            try:
                state = _read_state(path)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001  whatever is wrong with it, the one before may do
                faults.append(f"{path.name}: {_words(error)}")
                continue
            if path == self.before_file:
                why = faults[0] if faults else f"{self.state_file.name} is gone"
                _log.warning("%s. The run goes on from the checkpoint before, %s.", why, path.name)
            return state
        if faults:
            raise InvalidFile(f"no checkpoint in {self.weights} can be read ({'; '.join(faults)})", "start anew")
        raise MissingFile(f"there is no checkpoint in {self.weights}", "name the folder of a run, or start anew")

    def save_model(self, name: str, model: nn.Module, names: Sequence[str], facts: dict[str, Any]) -> None:
        """Keep weights as `best.pt` or `last.pt`."""
        self._try(f"{name}.pt", lambda: save_weights(self.weights / f"{name}.pt", model, names, facts))

    def save_rows(self, rows: Sequence[dict[str, Any]], predicted: int) -> None:
        """Write results.csv anew, and the curves; `predicted` is the memory that the plan reckons with."""
        lines = [",".join(COLUMNS), *(",".join(_cell(row.get(name)) for name in COLUMNS) for row in rows)]
        text = ("\n".join(lines) + "\n").encode()
        self._try("results.csv", lambda: write_atomically(self.folder / "results.csv", lambda file: file.write(text)))
        scored = [row for row in rows if row.get("map50") is not None]
        epochs = [float(row["epoch"]) for row in scored]
        if scored:
            values: dict[str, Sequence[float]] = {
                "mAP50": [row["map50"] for row in scored],
                "mAP50-95": [row["map50_95"] for row in scored],
            }
            self.save_chart("map", curves("mAP", epochs, values))
        all_epochs = [float(row["epoch"]) for row in rows]
        losses = {name: [float(row[name]) for row in rows] for name in ("loss", *PARTS)}
        self.save_chart("loss", curves("Training loss, mean of an epoch", all_epochs, losses))
        memory: dict[str, Sequence[float]] = {
            "measured": [row["memory"] / GIB for row in rows],
            "predicted": [predicted / GIB] * len(rows),
        }
        self.save_chart("memory", curves("Peak of memory in GiB", all_epochs, memory))

    def epoch_of(self, name: str) -> int | None:
        """The epoch whose weights `best.pt` or `last.pt` really holds; None where there is no such file."""
        try:
            with open_inert(self.weights / f"{name}.pt") as file:
                return int(file.content["extra"]["epoch"])
        except (OomphError, LookupError, TypeError, ValueError):
            return None

    def save_found(
        self, found: dict[int, ImageResult], index: ImageIndex, names: Sequence[str], *, picture: bool = True
    ) -> None:
        """Keep what was found in validation images, by their numbers: all of it, and the first ones as a picture."""
        path = self.folder / "predictions.npz"
        self._try(path.name, lambda: write_results(path, list(found.values()), names))
        if picture:
            self.save_picture("val_predictions", found_sheet(index, found, names))

    def save_scores(self, scores: Scores) -> None:
        """Keep the precision-recall curves."""
        self.save_chart("precision_recall", precision_recall(scores))

    def save_chart(self, name: str, chart: Chart) -> None:
        """Keep a chart as a picture."""
        self.save_picture(name, draw_chart(chart))

    def save_picture(self, name: str, pixels: np.ndarray[Any, Any]) -> None:
        """Keep a picture."""
        path = self.folder / f"{name}.png"
        self._try(
            path.name,
            lambda: write_atomically(
                path, lambda file: Image.fromarray(pixels).save(file, format="PNG", compress_level=1)
            ),
        )

    def save_json(self, name: str, value: dict[str, Any]) -> None:
        """Keep plain facts."""
        self.save_text(name, json.dumps(value, indent=1, default=str) + "\n")

    def save_text(self, name: str, text: str) -> None:
        """Keep a text."""
        self._try(name, lambda: write_atomically(self.folder / name, lambda file: file.write(text.encode())))

    def _try(self, what: str, write: Any) -> None:
        try:
            write()
        except OSError as error:
            with contextlib.suppress(OSError):
                _log.warning("%s could not be written: %s. Training goes on.", what, error.strerror or error)


class Onlooker(Keeper):
    """The keeper of a rank that isn't the first: it reads the folder, and writes nothing there but its own Record."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__(folder)
        self._rank = rank

    @property
    def record_file(self) -> Path:
        """The Record of this rank."""
        return self.folder / f"record-{self._rank}.jsonl"

    def save_rows(self, rows: Sequence[dict[str, Any]], predicted: int) -> None:
        """The first rank does."""

    def save_found(
        self, found: dict[int, ImageResult], index: ImageIndex, names: Sequence[str], *, picture: bool = True
    ) -> None:
        """The first rank does."""

    def save_chart(self, name: str, chart: Chart) -> None:
        """The first rank does."""

    def _try(self, what: str, write: Any) -> None:
        """Nothing is written."""


def _try_file(folder: Path) -> None:
    """Make a file and remove it; a disk that is only full now is left to be survived.

    Raises:
        OSError: none may be made there.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno in _FORBIDDEN:
            raise


def _read_state(path: Path) -> dict[str, Any]:
    """A state, its checksums verified: torch does not look at them.

    Raises:
        InvalidFile: it is damaged, or of another kind.
    """
    with path.open("rb") as file:
        with zipfile.ZipFile(file) as archive:
            if archive.testzip() is not None:
                raise InvalidFile("it is damaged", "take another one")
        file.seek(0)
        state = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or (state.get("format"), state.get("version")) != (_STATE, _VERSION):
        raise InvalidFile("it is of another kind or version", "take another one")
    return state


def _words(error: Exception) -> str:
    return error.why if isinstance(error, InvalidFile) else " ".join(str(error).split())[:80]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
