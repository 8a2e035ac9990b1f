"""Weights from the reference's checkpoints and our own files; our own are written so that none is ever half there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UsageError
from ...files import write_atomically
from ..model._network import SIZES, STRIDES, Yolov5, yolov5
from ._safe_unpickle import Record, Stored, materialise, open_inert

_FORMAT, _VERSION = "oomph weights", 1
_HEAD = "model.24.m."
_BOX = 5
_DEEPEST, _MOST = 12, 10_000  # modules inside modules, and tensors, that a network may have


@dataclass(frozen=True)
class Weights:
    """What a weights file holds.

    Attributes:
        size: of the network, "n" to "x".
        classes: how many classes it tells apart; names: what they are called, if the file says.
        state: the tensors by the reference's names, floating-point ones in fp32.
        origin: which part of the file they are from: "ema", "model" or "weights" (ours).
    """

    size: str
    classes: int
    names: tuple[str, ...] | None
    state: dict[str, Tensor]
    origin: str

    def build(self) -> Yolov5:
        """The network with these weights."""
        model = yolov5(self.size, self.classes)
        model.load_state_dict(self.state, strict=True)
        return model


def read_weights(path: Path) -> Weights:
    """Read a reference checkpoint, a plain state dict or our own weights, executing nothing from the file.

    Raises:
        MissingFile: there is no such file.
        UsageError: it is damaged, asks to run something, or holds no YOLOv5 that we know.
    """
    with open_inert(path) as file:
        stored, names, origin = _find(file.content, path)
        state = {name: _full(file.tensor(value)) for name, value in stored.items()}
    size, classes = _identify(state, path)
    return Weights(size, classes, names if names and len(names) == classes else None, state, origin)


def load_weights(model: Yolov5, weights: Weights) -> str | None:
    """Put weights into a network, every tensor of them; if the classes differ in number, all but the head.

    Returns:
        A sentence about what was left out, or None.

    Raises:
        UsageError: the weights are those of another size.
    """
    if weights.size != model.size:
        raise UsageError(
            f"the weights are those of yolov5{weights.size} and the network is yolov5{model.size}",
            f"train yolov5{weights.size}, or take other weights",
        )
    if weights.classes == model.classes:
        model.load_state_dict(weights.state, strict=True)
        return None
    # The anchors stay with the head that they were trained with.
    own = model.state_dict()
    kept = {name: own[name] if name.startswith("model.24.") else value for name, value in weights.state.items()}
    model.load_state_dict(kept, strict=True)
    return (
        f"The weights know {weights.classes} classes and the data has {model.classes}: "
        "all layers but the head were taken over, the head begins fresh."
    )


def save_weights(path: Path, model: nn.Module, names: Sequence[str], extra: Mapping[str, Any] | None = None) -> None:
    """Write a network's weights: plain tensors under the reference's names, and what is needed to use them.

    Args:
        path: the file; it is replaced in one go, or left as it was.
        model: the network, perhaps inside DistributedDataParallel.
        names: of the classes.
        extra: further plain values, such as epoch and mAP.

    Raises:
        OSError: the disk is full or not writable; the file before is untouched.
    """
    network = getattr(model, "module", model)
    if not isinstance(network, Yolov5):
        raise UsageError(f"the model is a {type(network).__name__}", "give one that oomph.detect.yolov5 built")
    pixels = network.head.anchors.float().cpu() * torch.tensor(STRIDES).view(-1, 1, 1)
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "size": network.size,
        "names": [str(name) for name in names],
        "anchors": pixels.tolist(),
        "stride": list(STRIDES),
        "extra": dict(extra or {}),
        "model": {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()},
    }
    write_atomically(path, lambda file: torch.save(document, file))


def read_plain(path: Path) -> Any:
    """Everything in a file of plain containers and tensors, checksums verified, executing nothing.

    Raises:
        MissingFile: there is no such file.
        UsageError: it is damaged or holds anything else.
    """
    with open_inert(path) as file:
        return materialise(file, file.content)


def _full(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _find(content: Any, path: Path) -> tuple[dict[str, Stored], tuple[str, ...] | None, str]:
    """The tensors in what a file holds, the names of its classes, and which part they are from."""
    if isinstance(content, dict) and content.get("format") == _FORMAT:
        return _state(content["model"], path), _names(content.get("names")), "weights"
    parts = content if isinstance(content, dict) else {"model": content}
    for origin in ("ema", "model"):
        part = parts.get(origin)
        if isinstance(part, Record):
            attributes = part.state if isinstance(part.state, dict) else {}
            return dict(_walk(part, "", [])), _names(attributes.get("names")), origin
        if isinstance(part, dict) and part:
            return _state(part, path), _names(parts.get("names")), origin
    return _state(parts, path), None, "model"


def _state(values: Any, path: Path) -> dict[str, Stored]:
    if isinstance(values, dict):
        found = {str(name): value for name, value in values.items() if isinstance(value, Stored)}
        if found:
            return found
    raise UsageError(f"{path} holds no model", "name a YOLOv5 checkpoint or weights that oomph wrote")


def _walk(record: Record, prefix: str, found: list[tuple[str, Stored]]) -> list[tuple[str, Stored]]:
    """The tensors of a module record and of those inside it, by their state-dict names, added to `found`."""
    state = record.state if isinstance(record.state, dict) else {}
    passing = state.get("_non_persistent_buffers_set") or set()
    if prefix.count(".") > _DEEPEST or len(found) > _MOST:
        raise UsageError("the file holds modules inside modules without an end", "take another checkpoint")
    for table in ("_parameters", "_buffers"):
        for name, value in _items(state.get(table)):
            if isinstance(value, Stored) and name not in passing:
                found.append((f"{prefix}{name}", value))
    for name, child in _items(state.get("_modules")):
        if isinstance(child, Record):
            _walk(child, f"{prefix}{name}.", found)
    return found


def _items(table: Any) -> list[tuple[Any, Any]]:
    return list(table.items()) if isinstance(table, dict) else []


def _names(found: Any) -> tuple[str, ...] | None:
    if isinstance(found, dict):
        found = [found[key] for key in sorted(found, key=lambda key: (isinstance(key, str), key))]
    return tuple(str(name) for name in found) if isinstance(found, (list, tuple)) else None


def _identify(state: dict[str, Tensor], path: Path) -> tuple[str, int]:
    """Size and classes of the network that tensors belong to; every name and shape must be right."""
    state.pop("model.24.anchor_grid", None)  # older files keep what follows from the anchors
    first, last = state.get("model.0.conv.weight"), state.get(f"{_HEAD}0.weight")
    if first is not None and last is not None and len(last) % 3 == 0 and len(last) // 3 > _BOX:
        classes = len(last) // 3 - _BOX
        for size, (_, width) in SIZES.items():
            if len(first) != math.ceil(64 * width / 8) * 8:
                continue
            with torch.device("meta"):
                expected = {name: value.shape for name, value in yolov5(size, classes).state_dict().items()}
            if expected == {name: value.shape for name, value in state.items()}:
                return size, classes
    raise UsageError(
        f"{path} holds tensors that are not those of YOLOv5 n, s, m, l or x as of version 6 and 7",
        "take a checkpoint of one of these",
    )
