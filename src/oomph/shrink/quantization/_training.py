"""The quantization-aware training of a detector, which the same command continues after an interruption."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import replace
from pathlib import Path

from ...detect import ProgressCallback, TrainConfig, TrainResult, load_config, train
from ...errors import MissingFile, UsageError
from ...files import write_atomically

_SOURCE_FILE = "source.json"
_ELSEWHERE = "move that folder away, or pass another --out"


def train_aware(config: TrainConfig, progress: ProgressCallback) -> tuple[Path, TrainResult]:
    """Train a detector with fake quantization, or continue its training; return the best weights and the result.

    Raises:
        UsageError: the folder has another training, or data or settings can't be used.
        CannotFit: nothing fits the budget.
    """
    saved = _saved_config(config)
    result = train(saved or config, progress, resume=saved is not None)
    best, last = (config.run_dir / "weights" / name for name in ("best.pt", "last.pt"))
    return best if best.exists() else last, result  # without the scoring package the best epoch is unknown


def _saved_config(config: TrainConfig) -> TrainConfig | None:
    """Return the config of the training to continue; None if there is none yet.

    Raises:
        UsageError: the folder has another training.
    """
    folder = config.run_dir
    source = {"weights_sha256": _sha256(config)}
    path = folder / _SOURCE_FILE
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"'{folder}' exists and has no training of this command", _ELSEWHERE)
        try:
            write_atomically(path, lambda file: file.write(json.dumps(source).encode()))
        except OSError as error:
            raise UsageError(f"'{folder}' can't be written ({error.strerror})", "pass another --out") from None
    elif path.read_bytes() != json.dumps(source).encode():
        raise UsageError(f"'{folder}' has a training of other weights than {config.weights}", _ELSEWHERE)
    try:
        saved = load_config(folder)
    except MissingFile:  # it was stopped before its first checkpoint
        return None
    # Device and budget may change: they don't change what is learned.
    requested = replace(saved.requested, device=config.device, budget=config.budget)
    if changed := [item.name for item in dataclasses.fields(config) if _differs(item.name, requested, config)]:
        raise UsageError(f"'{folder}' has a training with other settings ({', '.join(changed)})", _ELSEWHERE)
    return replace(saved.resolved, device=config.device, budget=config.budget)


def _differs(name: str, first: TrainConfig, second: TrainConfig) -> bool:
    return bool(getattr(first, name) != getattr(second, name))


def _sha256(config: TrainConfig) -> str:
    assert config.weights is not None  # noqa: S101  for the type checker
    return hashlib.sha256(config.weights.read_bytes()).hexdigest()
