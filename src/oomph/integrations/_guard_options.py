"""The options of `oomph.guard` that integrations pass on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..recovery import as_tuple


def with_extra_state(options: Mapping[str, Any], *state: object) -> dict[str, Any]:
    """Return options whose extra_state also has the state that an integration restores."""
    return {**options, "extra_state": (*as_tuple(options.get("extra_state")), *state)}
