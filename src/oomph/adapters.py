"""Objects of other frameworks as Jobs: `oomph.predict(trainer)` and `oomph.plan(trainer)`.

The adapters are in `integrations`, a later layer. The adapter of an object is found by the framework that defines its
class, and imported only then, so that no framework is imported that isn't loaded already.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from .errors import UsageError
from .job import Job
from .settings import Settings

# The first part of a class's module, and the adapter's file in oomph/integrations.
_ADAPTERS = {
    "transformers": "transformers",
    "trl": "transformers",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "ultralytics": "ultralytics",
    "keras": "keras",
}


@dataclass(frozen=True)
class FrameworkJob:
    """A Job with the Settings that a framework's object trains it with."""

    job: Job
    settings: Settings


def as_job(source: object, settings: Settings | None) -> tuple[Job, Settings]:
    """Return a Job and its Settings, of a Job or of a framework's own object.

    Args:
        source: a Job, an object that an integration knows, such as a Trainer of transformers, or what its `describe`
            returned.
        settings: how to train it; of a framework's object, by default as it says itself.

    Raises:
        UsageError: no integration knows the object, or a Job comes without settings.
    """
    if isinstance(source, Job):
        if settings is None:
            raise UsageError("a Job was passed without settings", "pass Settings(batch=…), too")
        return source, settings
    described = source if isinstance(source, FrameworkJob) else _describe(source)
    return described.job, described.settings if settings is None else settings


def _describe(source: object) -> FrameworkJob:
    for cls in type(source).__mro__:
        name = _ADAPTERS.get(cls.__module__.partition(".")[0])
        if name is not None:
            adapter = importlib.import_module(f"{__package__}.integrations.{name}")
            described = adapter.describe(source)
            if isinstance(described, FrameworkJob):
                return described
    raise UsageError(f"a {type(source).__name__} can't be predicted", "pass a Job, or the trainer of a framework")
