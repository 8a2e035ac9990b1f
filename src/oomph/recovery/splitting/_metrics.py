"""Sums of a user's metrics over the micro-batches of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ...errors import UsageError

MetricFunction = Callable[[Any, Any], Mapping[str, Any]]


class Metrics:
    """Adds up what `function(outputs, batch)` returns for each micro-batch, without waiting for the device.

    Args:
        function: returns a dict of numbers or tensors, such as counts of correct predictions; None for no metrics.
    """

    def __init__(self, function: MetricFunction | None = None) -> None:
        self._function = function
        self.sums: dict[str, Any] = {}

    def add(self, outputs: Any, batch: Any) -> None:
        """Add the metrics of a micro-batch.

        Raises:
            UsageError: the function returned something else than a dict.
        """
        if self._function is None:
            return
        with torch.no_grad():
            values = self._function(outputs, batch)
            if not isinstance(values, Mapping):
                raise UsageError(
                    f"metrics returned a {type(values).__name__}", "return a dict, such as {'correct': number}"
                )
            for name, value in values.items():
                value = value.detach() if isinstance(value, Tensor) else value  # noqa: PLW2901  the same value
                self.sums[name] = self.sums[name] + value if name in self.sums else value
