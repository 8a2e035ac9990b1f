"""The process that a script runs in, seen from outside."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ..errors import MissingFile, UsageError, quote, shorten
from ._capture import Capture, Failure, ScriptRun

_ENVIRONMENT = {
    "COMET_MODE": "disabled",
    "CUDA_VISIBLE_DEVICES": "",  # a GPU that is there must not be used
    "PYTORCH_JIT": "0",  # scripted functions can't be traced
    "TORCHDYNAMO_DISABLE": "1",
    "WANDB_MODE": "disabled",
}


def capture_script(run: ScriptRun, max_seconds: float) -> Capture:
    """Run a script in a new process until its training steps are recorded.

    Raises:
        MissingFile: the script does not exist.
        UsageError: the script failed, ended or ran for too long before it had trained.
    """
    if not Path(run.path).is_file():
        raise MissingFile(f"the script {quote(run.path, 200)} does not exist", "check the path")
    result = _execute(run, max_seconds)
    if isinstance(result, Failure) and result.is_guess:
        # Code that validates its data (`if bad.any(): raise`) passes only if booleans are False.
        second = _execute(dataclasses.replace(run, boolean=not run.boolean), max_seconds)
        result = result if isinstance(second, Failure) else second
    if isinstance(result, Failure):
        raise UsageError(f"{Path(run.path).name} {result.why}", result.fix)
    return result


def _execute(run: ScriptRun, max_seconds: float) -> Capture | Failure:
    with tempfile.TemporaryDirectory(prefix="oomph-script-") as name:
        folder = Path(name)
        (folder / "request").write_bytes(pickle.dumps(run))
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-m", "oomph.script._child", name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )
        try:
            code = process.wait(max_seconds)
        except subprocess.TimeoutExpired:
            return _timeout(folder, max_seconds)
        finally:
            _kill(process)
        if (folder / "result").is_file():
            result: Capture | Failure = pickle.loads((folder / "result").read_bytes())  # noqa: S301  our own process's
            return _with_last_line(result, folder)
        return Failure(
            f"ended its process with exit code {code}{_last_line(folder)}", "run the script itself to see why"
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and those that it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _timeout(folder: Path, max_seconds: float) -> Failure:
    progress = folder / "progress"
    reached = progress.read_text() if progress.is_file() else "it was still importing"
    return Failure(
        f"did not finish its first training steps within {max_seconds:g} s: {reached}",
        "raise --max-seconds, or pass flags after -- that make it train sooner",
    )


def _with_last_line(result: Capture | Failure, folder: Path) -> Capture | Failure:
    """Add the script's last line to a failure that it has explained there: wrong flags, for example."""
    if isinstance(result, Failure) and result.is_explained:
        return dataclasses.replace(result, why=f"{result.why}{_last_line(folder)}")
    return result


def _last_line(folder: Path) -> str:
    lines = (folder / "output").read_text(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f", its last line is {quote(shorten(last, 200), 200)}" if last else ""
