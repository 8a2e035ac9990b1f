"""Rules about memory that is kept or not needed."""

from __future__ import annotations

from ._empty_cache_in_loop import EMPTY_CACHE_IN_LOOP
from ._exception_kept import EXCEPTION_KEPT
from ._hook_not_removed import HOOK_NOT_REMOVED
from ._loss_keeps_graph import LOSS_KEEPS_GRAPH, OUTPUTS_KEEP_GRAPH
from ._retain_graph_in_loop import RETAIN_GRAPH_IN_LOOP
from ._useless_del import USELESS_DEL
from ._validation import VALIDATION_WITH_GRAD, VALIDATION_WITHOUT_EVAL

LEAK_RULES = (
    LOSS_KEEPS_GRAPH,
    OUTPUTS_KEEP_GRAPH,
    VALIDATION_WITH_GRAD,
    VALIDATION_WITHOUT_EVAL,
    HOOK_NOT_REMOVED,
    RETAIN_GRAPH_IN_LOOP,
    EXCEPTION_KEPT,
    EMPTY_CACHE_IN_LOOP,
    USELESS_DEL,
)

__all__ = [
    "EMPTY_CACHE_IN_LOOP",
    "EXCEPTION_KEPT",
    "HOOK_NOT_REMOVED",
    "LEAK_RULES",
    "LOSS_KEEPS_GRAPH",
    "OUTPUTS_KEEP_GRAPH",
    "RETAIN_GRAPH_IN_LOOP",
    "USELESS_DEL",
    "VALIDATION_WITHOUT_EVAL",
    "VALIDATION_WITH_GRAD",
]
