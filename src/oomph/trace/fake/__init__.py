"""Running the user's code on fake tensors: copies of live objects, values that are known, and assumed ones."""

from __future__ import annotations

from ._data_dependent import DataAssumptions
from ._eager_code import eager_code, untraced_transformers
from ._global_state import preserve_global_state
from ._known_values import mark_example, set_known
from ._user_code import failing_line, running_stack
from ._value_tracker import EndlessLoop, ValueTracker
from ._world import AnyDeviceIsCpu, FakeWorld

__all__ = [
    "AnyDeviceIsCpu",
    "DataAssumptions",
    "EndlessLoop",
    "FakeWorld",
    "ValueTracker",
    "eager_code",
    "failing_line",
    "mark_example",
    "preserve_global_state",
    "running_stack",
    "set_known",
    "untraced_transformers",
]
