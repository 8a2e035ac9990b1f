"""Processes of their own for TensorFlow: started with a task, they answer with a JSON file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import OomphError, UsageError, shorten

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Only the CPU is used, as TFLite files are run there.
_ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def run_task(module: str, task: DataclassInstance) -> Any:
    """Run a module of this package with a task; return its answer.

    Raises:
        OomphError: raised by the process, with its type, or the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", f"{__package__}.{module}", json.dumps(asdict(task)), str(answer)]
        environment = {**os.environ, **_ENVIRONMENT}
        process = subprocess.run(  # noqa: S603  this interpreter
            command, capture_output=True, text=True, check=False, env=environment
        )
        if not answer.exists():
            lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
            raise OomphError(f"TensorFlow's process failed ({shorten(lines[-1], 200)})", "report this")
        content = json.loads(answer.read_text())
    if "why" in content:
        error = UsageError if content["exit_code"] == UsageError.exit_code else OomphError
        raise error(content["why"], content["fix"])
    return content


def answer_task(work: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Run `work` with the task of the command line, and write its result or its error.

    Standard output isn't used: TensorFlow prints there.
    """
    try:
        result = work(json.loads(sys.argv[1]))
    except OomphError as error:
        result = {"why": error.why, "fix": error.fix, "exit_code": error.exit_code}
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")
