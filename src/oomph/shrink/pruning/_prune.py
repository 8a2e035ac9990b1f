"""Pruning of any model: `oomph.shrink.prune`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ...detect import read_checkpoint
from ...errors import UsageError
from ...files import write_atomically
from ...patches import read_widths, set_widths
from ._channels import check_torch_pruning, find_output_layers, find_smallest_cut

_FORMAT, _VERSION = "oomph pruned model", 1


@dataclass(frozen=True)
class PrunedModel:
    """A pruned copy of a model.

    Attributes:
        model: the copy, with fewer channels.
        widths: inputs and outputs of its layers by path; with the weights, all that a file needs.
        operations: floating-point operations of a forward pass before and after.
        parameters: number of parameters before and after.
    """

    model: nn.Module
    widths: dict[str, tuple[int, int]]
    operations: tuple[int, int]
    parameters: tuple[int, int]


def prune(
    model: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    *,
    ops: float | None = None,
    fits: Callable[[nn.Module], bool] | None = None,
    keep: Sequence[str] = (),
) -> PrunedModel:
    """Return a copy of a model with fewer channels in every layer, the least important ones removed.

    Fine-tune it afterwards, then write it with `save_pruned`.

    Args:
        model: a network of convolutions, linear layers and BatchNorms; it isn't changed.
        inputs: an example of its inputs, such as one image.
        ops: fraction of the operations that may remain, such as 0.5.
        fits: instead of `ops`: returns True for a model that is small enough, for instance one that
            `oomph.predict` says trains in 4 GiB.
        keep: paths of layers whose outputs must stay; those of the model's own outputs always do.

    Raises:
        UsageError: neither or both of `ops` and `fits`, a target smaller than possible, or a model whose channels
            can't be followed.
    """
    check_torch_pruning()
    example = inputs if isinstance(inputs, tuple) else (inputs,)
    if fits is None:
        fits = _operations_limit(model, example, ops)
    elif ops is not None:
        raise UsageError("both ops and fits are given", "pass one of them")
    kept = (*keep, *find_output_layers(model, example))
    pruned = find_smallest_cut(model, example, kept, fits)
    if pruned is None:
        raise UsageError("no number of channels is small enough", "pass a larger target, or start with another model")
    widths = read_widths(pruned)
    _check_rebuild(model, pruned, widths, example)
    return PrunedModel(
        pruned,
        widths,
        (count_operations(model, example), count_operations(pruned, example)),
        (count_parameters(model), count_parameters(pruned)),
    )


def save_pruned(path: Path | str, model: nn.Module) -> None:
    """Write a pruned model: channels and weights as plain values, without code.

    Raises:
        OSError: the disk is full or not writable; a previous file is untouched.
    """
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "widths": {layer: list(pair) for layer, pair in read_widths(model).items()},
        "model": {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()},
    }
    write_atomically(Path(path), lambda file: torch.save(content, file))


def load_pruned(path: Path | str, model: nn.Module) -> nn.Module:
    """Give a model the channels and weights of a file, in place, and return it. Nothing in the file is executed.

    Args:
        path: a file of `save_pruned`.
        model: the model that was pruned, as its own code builds it.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't a file of `save_pruned`, or one of another model.
    """
    content = read_checkpoint(Path(path))
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise UsageError(f"{path} is not a pruned model", "pass a file of oomph.shrink.save_pruned")
    try:
        set_widths(model, _parse_widths(content["widths"]))
        model.load_state_dict(content["model"])
    except (KeyError, TypeError, ValueError, RuntimeError, UsageError):
        raise UsageError(f"{path} is not a pruned {type(model).__name__}", "pass the model that was pruned") from None
    return model


def count_operations(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Return the floating-point operations of a forward pass in eval mode; a multiply-add counts as two."""
    mode = model.training
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model.eval()(*inputs)
    finally:
        model.train(mode)
    return int(counter.get_total_flops())


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def _operations_limit(model: nn.Module, inputs: tuple[Tensor, ...], ops: float | None) -> Callable[[nn.Module], bool]:
    if ops is None or not 0 < ops < 1:
        raise UsageError(f"ops is {ops}", "pass a fraction of the operations between 0 and 1, such as 0.5")
    limit = ops * count_operations(model, inputs)
    return lambda pruned: count_operations(pruned, inputs) <= limit


def _parse_widths(widths: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {str(layer): (int(inputs), int(outputs)) for layer, (inputs, outputs) in widths.items()}


def _check_rebuild(
    model: nn.Module, pruned: nn.Module, widths: Mapping[str, tuple[int, int]], inputs: tuple[Tensor, ...]
) -> None:
    """Check that widths and weights describe a pruned model, and that it still runs.

    Raises:
        UsageError: it has other state, such as pruned parameters that belong to no layer.
    """
    rebuilt = copy.deepcopy(model)
    try:
        set_widths(rebuilt, widths)
        rebuilt.load_state_dict(pruned.state_dict())
        with torch.no_grad():
            rebuilt.eval()(*inputs)
    except Exception:  # noqa: BLE001  whatever its forward raises
        raise UsageError(
            f"{type(model).__name__} has layers whose channels can't be changed",
            "prune a model of convolutions, linear layers and BatchNorms, or list the layers to `keep`",
        ) from None
