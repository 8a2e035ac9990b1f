"""Training scripts: run unmodified, in a process of their own, until their first steps are traced. No torch here."""

from ._capture import Capture, Model, ScriptRun, TrainingLoop
from ._process import capture_script

__all__ = ["Capture", "Model", "ScriptRun", "TrainingLoop", "capture_script"]
