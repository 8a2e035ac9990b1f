"""The argument JOB of several commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UsageError, quote

if TYPE_CHECKING:
    from ...job import Job

BUILT_IN_SIZE = "640"


def built_in_jobs() -> dict[str, str]:
    """Return the names of the built-in Jobs, and the names of their networks as in --cfg."""
    from ...detect import ARCHITECTURES  # noqa: PLC0415

    return {architecture.label: name for name, architecture in ARCHITECTURES.items()}


def find_job(reference: str) -> Job:
    """Return a built-in Job, or the one of a file."""
    from ...job import load_job  # noqa: PLC0415

    built_in = built_in_jobs()
    if reference not in built_in:
        if ".py" not in reference:
            raise UsageError(
                f"{quote(reference)} does not name a Job",
                f"write path/to/file.py:function, path/to/train.py, or one of {', '.join(built_in)}",
            )
        return load_job(reference)
    from ...detect import detection_job  # noqa: PLC0415

    return detection_job(built_in[reference])
