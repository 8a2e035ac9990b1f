"""Weights files: the reference's checkpoints and oomph's format, which is written atomically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UsageError, quote
from ...files import write_atomically
from ...patches import Widths
from ..model import ARCHITECTURES, STRIDES, Architecture, Yolov5, find_architecture, yolov5
from ._safe_checkpoint import open_checkpoint
from ._safe_unpickle import LazyTensor, OpaqueObject

_FORMAT, _VERSION = "oomph weights", 1
_BOX_OUTPUTS = 5
_MAX_MODULE_DEPTH, _MAX_TENSORS = 12, 10_000


@dataclass(frozen=True)
class Weights:
    """Content of a weights file.

    Attributes:
        size: name of the architecture, "n" to "x" or that of another backbone.
        classes: number of classes.
        names: class names, if the file has them.
        widths: channels of the layers, if the network was pruned.
        state: tensors under the reference's names, floating-point ones in fp32.
        origin: part of the file that they are from: "ema", "model" or "weights" (oomph's format).
    """

    size: str
    classes: int
    names: tuple[str, ...] | None
    state: dict[str, Tensor]
    origin: str
    widths: Widths | None = None

    def build(self) -> Yolov5:
        """Build the network with these weights."""
        model = yolov5(self.size, self.classes, widths=self.widths)
        model.load_state_dict(self.state, strict=True)
        return model

    def check_network(self, size: str) -> None:
        """Check that these are weights of a network, by the name of its architecture.

        Raises:
            UsageError: they are those of another network.
        """
        if self.size != size:
            label = find_architecture(self.size).label
            raise UsageError(
                f"the weights are {label} and the network is {find_architecture(size).label}",
                f"train {label}, or pass other weights",
            )


def read_weights(path: Path) -> Weights:
    """Read a reference checkpoint, a plain state dict or an oomph weights file, executing nothing from it.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it is damaged, tries to execute code, or doesn't contain a network of ARCHITECTURES.
    """
    with open_checkpoint(path) as checkpoint:
        tensors, names, origin = _find_tensors(checkpoint.content, path)
        candidates = _candidates(checkpoint.content, path)
        widths = _parse_widths(checkpoint.content, path)
        state = {name: _to_fp32(checkpoint.tensor(lazy)) for name, lazy in tensors.items()}
    size, classes = _identify(state, candidates, widths, path)
    return Weights(size, classes, names if names and len(names) == classes else None, state, origin, widths)


def load_weights(model: Yolov5, weights: Weights) -> str | None:
    """Load weights into a network; if the number of classes differs, all layers but the head.

    Returns:
        A sentence about the tensors that were left out, or None.

    Raises:
        UsageError: the weights are those of another network.
    """
    weights.check_network(model.size)
    if weights.widths != model.widths:
        raise UsageError("the weights and the network were pruned differently", "build the network of the weights")
    if weights.classes == model.classes:
        model.load_state_dict(weights.state, strict=True)
        return None
    # The anchors stay with the head that they belong to.
    fresh = model.state_dict()
    head = _head_prefix(model.architecture)
    state = {name: fresh[name] if name.startswith(head) else value for name, value in weights.state.items()}
    model.load_state_dict(state, strict=True)
    return (
        f"the weights have {weights.classes} classes and the data has {model.classes}: "
        "all layers but the head were loaded, the head starts fresh"
    )


def save_weights(path: Path, model: nn.Module, names: Sequence[str], extra: Mapping[str, Any] | None = None) -> None:
    """Write a network's weights: plain tensors under the reference's names, with class names, anchors and strides.

    Args:
        path: the file; it is replaced atomically.
        model: the network, possibly inside DistributedDataParallel.
        names: class names.
        extra: further plain values, such as epoch and mAP.

    Raises:
        OSError: the disk is full or not writable; a previous file is untouched.
    """
    network = getattr(model, "module", model)
    if not isinstance(network, Yolov5):
        raise UsageError(f"the model is a {type(network).__name__}", "pass a model built by oomph.detect.yolov5")
    anchors = network.head.anchors.float().cpu() * torch.tensor(STRIDES).view(-1, 1, 1)
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "size": network.size,
        "widths": None if network.widths is None else {path: list(pair) for path, pair in network.widths.items()},
        "names": [str(name) for name in names],
        "anchors": anchors.tolist(),
        "stride": list(STRIDES),
        "extra": dict(extra or {}),
        "model": {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()},
    }
    write_atomically(path, lambda file: torch.save(content, file))


def _to_fp32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _find_tensors(content: Any, path: Path) -> tuple[dict[str, LazyTensor], tuple[str, ...] | None, str]:
    """Return the tensors of a file's content, its class names, and the part that they are from."""
    if isinstance(content, dict) and content.get("format") == _FORMAT:
        return _plain_state(content["model"], path), _parse_names(content.get("names")), "weights"
    parts = content if isinstance(content, dict) else {"model": content}
    for origin in ("ema", "model"):
        part = parts.get(origin)
        if isinstance(part, OpaqueObject):
            attributes = part.state if isinstance(part.state, dict) else {}
            return dict(_module_state(part, "", [])), _parse_names(attributes.get("names")), origin
        if isinstance(part, dict) and part:
            return _plain_state(part, path), _parse_names(parts.get("names")), origin
    return _plain_state(parts, path), None, "model"


def _plain_state(values: Any, path: Path) -> dict[str, LazyTensor]:
    if isinstance(values, dict):
        tensors = {str(name): value for name, value in values.items() if isinstance(value, LazyTensor)}
        if tensors:
            return tensors
    raise UsageError(f"{path} contains no model", "pass a YOLOv5 checkpoint or weights written by oomph")


def _module_state(
    module: OpaqueObject, prefix: str, tensors: list[tuple[str, LazyTensor]]
) -> list[tuple[str, LazyTensor]]:
    """Collect the tensors of a pickled module and its submodules under their state-dict names."""
    attributes = module.state if isinstance(module.state, dict) else {}
    excluded = attributes.get("_non_persistent_buffers_set") or set()
    if prefix.count(".") > _MAX_MODULE_DEPTH or len(tensors) > _MAX_TENSORS:
        raise UsageError("the file contains endlessly nested modules", "use another checkpoint")
    for table in ("_parameters", "_buffers"):
        for name, value in _items(attributes.get(table)):
            if isinstance(value, LazyTensor) and name not in excluded:
                tensors.append((f"{prefix}{name}", value))
    for name, child in _items(attributes.get("_modules")):
        if isinstance(child, OpaqueObject):
            _module_state(child, f"{prefix}{name}.", tensors)
    return tensors


def _items(table: Any) -> list[tuple[Any, Any]]:
    return list(table.items()) if isinstance(table, dict) else []


def _parse_names(names: Any) -> tuple[str, ...] | None:
    if isinstance(names, dict):
        names = [names[key] for key in sorted(names, key=lambda key: (isinstance(key, str), key))]
    return tuple(str(name) for name in names) if isinstance(names, (list, tuple)) else None


def _head_prefix(architecture: Architecture) -> str:
    """Return how the names of the head's tensors start."""
    return f"model.{architecture.head_index}."


def _candidates(content: Any, path: Path) -> tuple[str, ...]:
    """Return the architectures that a file may have: the one that oomph saved, or all.

    Raises:
        UsageError: the saved one is unknown.
    """
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        return tuple(ARCHITECTURES)
    name = str(content.get("size"))
    if name not in ARCHITECTURES:
        raise UsageError(
            f"the weights in {path} are those of {quote(name)}, a network that this version of oomph doesn't have",
            f"use weights of one of {', '.join(ARCHITECTURES)}",
        )
    return (name,)


def _parse_widths(content: Any, path: Path) -> Widths | None:
    """Return the widths of a pruned network.

    Raises:
        UsageError: they are damaged.
    """
    values = content.get("widths") if isinstance(content, dict) and content.get("format") == _FORMAT else None
    if values is None:
        return None
    if not isinstance(values, dict) or not all(isinstance(pair, list) and len(pair) == 2 for pair in values.values()):  # noqa: PLR2004
        raise UsageError(f"the widths in {path} are damaged", "copy or prune it again")
    try:
        return {str(layer): (int(inputs), int(outputs)) for layer, (inputs, outputs) in values.items()}
    except (TypeError, ValueError):
        raise UsageError(f"the widths in {path} are damaged", "copy or prune it again") from None


def _identify(
    state: dict[str, Tensor], candidates: Sequence[str], widths: Widths | None, path: Path
) -> tuple[str, int]:
    """Return architecture and number of classes; every name and shape must match."""
    for name in candidates:
        prefix = _head_prefix(find_architecture(name))
        last = state.get(f"{prefix}m.0.weight")
        if last is None or last.dim() == 0 or len(last) % 3 or len(last) // 3 <= _BOX_OUTPUTS:
            continue
        state.pop(f"{prefix}anchor_grid", None)  # older files store what follows from the anchors
        classes = len(last) // 3 - _BOX_OUTPUTS
        with torch.device("meta"):
            expected = {key: value.shape for key, value in yolov5(name, classes, widths=widths).state_dict().items()}
        if expected == {key: value.shape for key, value in state.items()}:
            return name, classes
    raise UsageError(
        f"the tensors in {path} are not those of YOLOv5 (version 6 or 7) or of another network of oomph",
        f"use a checkpoint of one of {', '.join(candidates)}",
    )
