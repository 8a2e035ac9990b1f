"""Channels of a model, removed by torch-pruning, which follows them through additions and concatenations."""

from __future__ import annotations

import bisect
import contextlib
import copy
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UsageError, describe

SHRINK_EXTRA = "run `pip install 'oomph[shrink]'`"
_STEPS = 64  # in which fractions of channels are tried
_MAX_STEP = 60  # the rest would be single channels
_ROUND_TO = 8  # GPUs compute fast with multiples of it


def check_torch_pruning() -> None:
    """Raise if torch-pruning isn't installed.

    Raises:
        UsageError: it isn't.
    """
    if importlib.util.find_spec("torch_pruning") is None:
        raise UsageError("pruning needs the package torch-pruning, which isn't installed", SHRINK_EXTRA)


def find_smallest_cut(
    model: nn.Module, inputs: tuple[Tensor, ...], kept: Sequence[str], fits: Callable[[nn.Module], bool]
) -> nn.Module | None:
    """Return a copy of a model with as few channels removed as needed; None if no cut is enough.

    Args:
        model: the model; it isn't changed.
        inputs: an example of its inputs.
        kept: paths of layers whose outputs stay.
        fits: returns True for a model that is small enough, and then for all smaller ones.
    """
    cuts: dict[int, nn.Module] = {}

    def is_enough(step: int) -> bool:
        cuts[step] = remove_channels(model, inputs, kept, step / _STEPS)
        return fits(cuts[step])

    steps = range(1, _MAX_STEP + 1)
    position = bisect.bisect_left(steps, True, key=is_enough)  # noqa: FBT003  the first that is enough
    return cuts[steps[position]] if position < len(steps) else None


def remove_channels(model: nn.Module, inputs: tuple[Tensor, ...], kept: Sequence[str], fraction: float) -> nn.Module:
    """Return a copy of a model without a fraction of the channels of every layer.

    Channels go by the norm of their weights in all layers that they connect, the smallest first. What remains is
    a multiple of 8 where the layer was.

    Raises:
        UsageError: torch-pruning can't follow the model's channels.
    """
    import torch_pruning  # noqa: PLC0415  an extra

    pruned = copy.deepcopy(model)
    with _differentiable(pruned), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about parameters that are no layer's, which stay
        try:
            torch_pruning.pruner.BasePruner(
                pruned,
                inputs,
                importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
                pruning_ratio=fraction,
                ignored_layers=[pruned.get_submodule(path) for path in kept],
                round_to=_ROUND_TO,
            ).step()
            pruned(*inputs)
        except Exception as error:  # noqa: BLE001  it raises whatever the model's operations lead to
            raise UsageError(
                f"the channels of {type(model).__name__} can't be followed through its operations ({describe(error)})",
                "prune a model without channel shuffles and custom reshapes",
            ) from None
    return pruned


def find_output_layers(model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[str, ...]:
    """Return the paths of layers whose outputs no other layer reads: those of the model itself."""
    import torch_pruning  # noqa: PLC0415

    probe = copy.deepcopy(model)
    with _differentiable(probe), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch_pruning.DependencyGraph().build_dependency(probe, inputs)
        paths = {layer: path for path, layer in probe.named_modules()}
        return tuple(paths[layer] for layer in graph.module2node if layer in paths and _is_output(graph, layer))


def _is_output(graph: Any, layer: nn.Module) -> bool:
    if not isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return False
    group = graph.get_pruning_group(layer, graph.get_pruner_of_module(layer).prune_out_channels, idxs=[0])
    return not any(graph.is_in_channel_pruning_fn(dependency.handler) for dependency, _ in group)


@contextlib.contextmanager
def _differentiable(model: nn.Module) -> Iterator[None]:
    """Let autograd see all parameters, in eval mode: torch-pruning reads the graph of a forward pass."""
    modes = {module: module.training for module in model.modules()}
    frozen = [path for path, parameter in model.named_parameters() if not parameter.requires_grad]
    model.eval().requires_grad_(requires_grad=True)
    with torch.enable_grad():
        yield
    for module in model.modules():
        module.training = modes[module]
    for path in frozen:
        model.get_parameter(path).requires_grad = False
