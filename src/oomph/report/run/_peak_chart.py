"""The composition of the predicted peak by module and kind, as a treemap that can be zoomed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...prediction import Owner, Prediction
from ...units import format_size
from ..page import PageFigure, PageTable, chart_text

_KIND_COLORS = {
    "saved activation": "#636efa",
    "temporary": "#0fa3c4",
    "parameter": "#00a67d",
    "gradient": "#e8871e",
    "optimizer state": "#ab63fa",
    "workspace": "#d6458f",
    "input": "#7a9a1a",
    "buffer": "#a87a50",
}
_REST_COLOR, _ROOT_COLOR = "#747985", "rgba(128,136,150,0.2)"
# Modules have a darker color than their kinds. It is opaque: plotly chooses the text's color by it.
_SHADE, _SHADE_FRACTION = "#2b303b", 0.55
_OUTSIDE, _ROOT = "outside the model", "predicted peak"
REST = "not traced to a module"
_HOVER_TEMPLATE = "<b>%{label}</b><br>%{text} (%{value:,.0f} bytes)<br>%{percentRoot:.1%} of the peak<extra></extra>"
_MAX_ROWS = 20
_DEPTH = 4  # levels that are drawn at a time


@dataclass(frozen=True)
class Part:
    """A part of the peak: the path of its module, its kind and its bytes."""

    path: tuple[str, ...]
    kind: str
    size: int


def peak_parts(prediction: Prediction) -> tuple[Part, ...]:
    """Return parts that add up to the predicted peak to the byte.

    Owners have the sizes that were requested. The allocator rounds them up, and a run adds memory to a step: that
    remainder is a part of its own. If measured runs lowered a prediction below the sum of its owners, each owner is
    scaled down.
    """
    total = round(prediction.allocated.value)
    owners = prediction.peak.owners
    traced = sum(owner.size for owner in owners)
    if traced <= total:
        rest = [Part((), REST, total - traced)] if traced < total else []
        return (*(Part(_path(owner), owner.kind, owner.size) for owner in owners), *rest)
    parts, before = [], 0
    for owner in owners:
        after = before + owner.size
        size = after * total // traced - before * total // traced
        parts.append(Part(_path(owner), owner.kind, size))
        before = after
    return tuple(parts)


def _path(owner: Owner) -> tuple[str, ...]:
    return tuple(owner.module.split(".")) if owner.module else (_OUTSIDE,)


def peak_figure(prediction: Prediction, name: str = "peak") -> PageFigure:
    """Return the treemap of a predicted peak."""
    parts = [part for part in peak_parts(prediction) if part.size > 0]
    total = sum(part.size for part in parts)
    peak, kinds = prediction.peak, _by_kind(parts)
    moment = f"at {peak.op}" + (f" of {peak.module}" if peak.module else "")
    largest = ", ".join(f"{kind} {format_size(size)}" for kind, size in kinds[:3])
    return PageFigure(
        name=name,
        title="What the predicted peak is made of",
        summary=f"{format_size(total)} ({total:,} bytes) in the {peak.phase} phase, {moment}: {largest}. "
        "Select a module to zoom in.",
        data=[_treemap(parts, total)],
        layout={"height": 520, "margin": {"l": 4, "r": 4, "t": 4, "b": 4}},
        table=PageTable(
            ("kind", "size", "bytes", "share"),
            tuple(
                (kind, format_size(size), f"{size:,}", f"{100 * size / max(total, 1):.1f} %") for kind, size in kinds
            ),
        ),
    )


def largest_parts(prediction: Prediction) -> PageTable:
    """Return the largest parts of the peak as a table."""
    parts = sorted(peak_parts(prediction), key=lambda part: -part.size)[:_MAX_ROWS]
    rows = [(".".join(part.path) or "-", part.kind, format_size(part.size), f"{part.size:,}") for part in parts]
    return PageTable(("module", "kind", "size", "bytes"), tuple(rows))


def _by_kind(parts: Sequence[Part]) -> list[tuple[str, int]]:
    sizes: dict[str, int] = {}
    for part in parts:
        sizes[part.kind] = sizes.get(part.kind, 0) + part.size
    return sorted(sizes.items(), key=lambda pair: -pair[1])


def _shaded(color: str) -> str:
    mixed = (
        round(int(color[at : at + 2], 16) * (1 - _SHADE_FRACTION) + int(_SHADE[at : at + 2], 16) * _SHADE_FRACTION)
        for at in (1, 3, 5)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _treemap(parts: Sequence[Part], total: int) -> dict[str, Any]:
    """Return a treemap with a node for each module on a path, and the kinds as leaves.

    A module has the color of its largest kind.
    """
    nodes: dict[str, tuple[str, str, int, str]] = {"": (_ROOT, "", total, _ROOT_COLOR)}
    for number, part in sorted(enumerate(parts), key=lambda pair: -pair[1].size):
        parent, color = "", _KIND_COLORS.get(part.kind, _REST_COLOR)
        for depth in range(len(part.path)):
            key = f"m:{'.'.join(part.path[: depth + 1])}"
            _, _, size, module_color = nodes.get(key, ("", "", 0, _shaded(color)))
            nodes[key] = (part.path[depth], parent, size + part.size, module_color)
            parent = key
        nodes[f"p:{number}"] = (part.kind, parent, part.size, color)
    ids = {key: key or "root" for key in nodes}
    return {
        "type": "treemap",
        "ids": [chart_text(ids[key]) for key in nodes],
        "labels": [chart_text(label) for label, *_ in nodes.values()],
        "parents": ["" if not key else chart_text(ids[parent]) for key, (_, parent, *_) in nodes.items()],
        "values": [size for _, _, size, _ in nodes.values()],
        "text": [format_size(size) for _, _, size, _ in nodes.values()],
        "marker": {"colors": [color for *_, color in nodes.values()], "line": {"width": 1, "color": "#9aa1ae"}},
        "branchvalues": "total",
        "maxdepth": _DEPTH,
        "textinfo": "label+text",
        "hovertemplate": _HOVER_TEMPLATE,
        "pathbar": {"visible": True},
        "tiling": {"pad": 2},
    }
