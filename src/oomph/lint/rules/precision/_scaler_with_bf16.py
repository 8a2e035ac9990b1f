"""Rule `scaler-with-bf16`: gradients of bfloat16 are scaled, which needs no scaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, EventKind
from ...sources import Document
from ._autocast import Precision, region_precisions
from ._scaled_regions import ScaledRegion, scaled_regions, scaler_creations


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    creations = scaler_creations(code)
    if not creations:
        return
    regions = list(scaled_regions(document))
    for creation in creations:
        if any(item.arg == "enabled" and code.constant(item.value) is not True for item in creation.keywords):
            continue
        name = _assigned_name(code, creation)
        used = [region for region in regions if name is not None and _uses(code, region, name, creation)]
        precisions = {precision for region in used for precision in _precisions(code, region)}
        if precisions == {Precision.BFLOAT16}:
            message = (
                f"{code.source(creation)} has no use with bfloat16, whose range is that of float32: remove the scaler "
                "and call backward and step directly"
            )
            yield Problem(code.span(creation), message)


def _assigned_name(code: Code, creation: ast.Call) -> str | None:
    parent = code.parent(creation)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        return code.name(parent.targets[0])
    return code.name(parent.target) if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)) else None


def _uses(code: Code, region: ScaledRegion, name: str, creation: ast.Call) -> bool:
    """Return True if a region uses the scaler of a creation; of several of one name, that before it."""
    events = [event for event in region.events if event.scaler == name and event.kind is not EventKind.UNSCALE]
    if not events:
        return False
    statements = [
        item.statement
        for item in code.assignments(name, events[0].call)
        if item.kind == "=" and getattr(item.statement, "lineno", 0) <= events[0].call.lineno
    ]
    return bool(statements) and statements[-1] is code.statement(creation)


def _precisions(code: Code, region: ScaledRegion) -> set[Precision]:
    in_region = region_precisions(code, region.node, region.piece if region.node is code.tree else None)
    function = code.function(region.node)
    return in_region or (region_precisions(code, function) if function is not None else set())


SCALER_WITH_BF16 = Rule(
    "scaler-with-bf16",
    RuleFamily.PRECISION,
    "A gradient scaler is used with bfloat16",
    _check,
    triggers=("bfloat16",),
)
