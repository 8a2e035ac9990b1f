"""Networks that may fit where a detector doesn't: the same one with fewer channels, and smaller YOLOv5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from ....patches import Widths
from ...model import ARCHITECTURES, HeadOutputs, find_architecture, scaled_widths, yolov5

_CHANNELS = (0.75, 0.5)  # fractions that are tried
_YOLOV5 = "yolov5"


@dataclass(frozen=True)
class SmallerNetwork:
    """A network that needs less memory than another.

    Attributes:
        label: its name in messages.
        cfg: its architecture.
        widths: its channels, if it is pruned.
        advice: the sentence that recommends it.
    """

    label: str
    cfg: str
    widths: Widths | None
    advice: str


def pruned_networks(cfg: str) -> Iterator[SmallerNetwork]:
    """Yield a YOLOv5 with fewer channels, the largest first; other backbones have none."""
    label = find_architecture(cfg).label
    if not label.startswith(_YOLOV5):
        return
    for fraction in _CHANNELS:
        widths = scaled_widths(cfg, fraction)
        remaining = round(_operations(cfg, widths) / _operations(cfg, None), 2)
        yield SmallerNetwork(
            f"pruned {label}",
            cfg,
            widths,
            f"pruned to {100 * remaining:.0f} % of its operations it fits (`oomph shrink prune --ops {remaining:g}`)",
        )


def smaller_sizes(cfg: str) -> Iterator[SmallerNetwork]:
    """Yield the smaller sizes of YOLOv5, the largest first; other backbones have no order of size."""
    names = [name for name, architecture in ARCHITECTURES.items() if architecture.label.startswith(_YOLOV5)]
    for name in reversed(names[: names.index(cfg)] if cfg in names else []):
        label = find_architecture(name).label
        yield SmallerNetwork(label, name, None, f"{label} fits")


def _operations(cfg: str, widths: Widths | None) -> int:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        HeadOutputs(yolov5(cfg, widths=widths))(torch.zeros(1, 3, 64, 64))
    return int(counter.get_total_flops())
