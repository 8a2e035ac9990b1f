"""The argument JOB of several commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError, quote

if TYPE_CHECKING:
    from ..job import Job

# Names of Jobs, and the sizes of their YOLOv5 detectors.
BUILT_IN = {f"yolov5{size}": size for size in "nsmlx"}
BUILT_IN_SIZE = "640"


def find_job(reference: str) -> Job:
    """Return a built-in Job, or the one of a file."""
    from ..job import load_job  # noqa: PLC0415

    if reference not in BUILT_IN:
        if ".py" not in reference:
            raise UsageError(
                f"{quote(reference)} does not name a Job",
                f"write path/to/file.py:function, path/to/train.py, or one of {', '.join(BUILT_IN)}",
            )
        return load_job(reference)
    from ..detect import detection_job  # noqa: PLC0415

    return detection_job(BUILT_IN[reference])
