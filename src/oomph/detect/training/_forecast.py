"""Forecasts of runs, without training them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...errors import CannotFit
from ...patches import configure_allocator
from ...planner import Plan
from .._device import find_device
from ..dataset import samples_per_epoch, tiling
from ._config import TrainConfig
from ._progress import ProgressCallback
from ._train import read_data
from .planning import Placement, plan_training, resolve_budget


@dataclass(frozen=True)
class TrainForecast:
    """Predicted memory and time of a run.

    Attributes:
        plan: the memory plan.
        images: training images of an epoch.
        seconds: estimated time of all training steps, without loading and validation.
    """

    plan: Plan
    images: int
    seconds: float


def forecast(configs: Sequence[TrainConfig], progress: ProgressCallback) -> Iterator[TrainForecast | CannotFit]:
    """Plan runs on the same data without training, and yield what each needs, or why it can't fit."""
    data = read_data(configs[0], progress)
    device = find_device(configs[0].device)
    placement = Placement(device, configure_allocator(device))
    for config in configs:
        planned = replace(config, budget=resolve_budget(config, device))
        try:
            plan = plan_training(planned, len(data.dataset.names), data.train, placement)
        except CannotFit as error:
            yield error
            continue
        images = max(samples_per_epoch(data.train, tiling(config.tiles, config.imgsz)), 1)
        steps = config.epochs * math.ceil(images / plan.settings.batch)
        yield TrainForecast(plan, images, steps * plan.planned_need.seconds.value)
