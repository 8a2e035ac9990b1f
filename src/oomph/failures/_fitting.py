"""Whether advice fits: its users can follow it, the message doesn't contradict it, and it isn't followed already."""

from __future__ import annotations

import re

from ._kinds import Advice, FailureKind
from ._situation import KERNEL_PLACES, NOTEBOOKS, QUEUES, Measure, Phase, Place, Situation, Speaker, System

_NO_ROOT_PLACES = {Place.COLAB, Place.KAGGLE, Place.CLOUD_JOB}
_WITHOUT_BACKWARD = {Phase.EVALUATING, Phase.GENERATING}
_WITHOUT_LOADER = {Speaker.UNKNOWN, Speaker.PANDAS, Speaker.NUMPY}
_WITHOUT_NVIDIA = {FailureKind.MPS_OOM, FailureKind.XPU_OOM}
# The driver writes to the kernel's log, whoever reports the failure.
_OF_DRIVER = {FailureKind.GPU_LOST, FailureKind.LAUNCH_FAILED}
# The word of the command by which a measure is recognized.
_FOLLOWED = {
    Measure.ADAPTERS: "LoraConfig",
    Measure.HALF_PRECISION: "torch.autocast",
    Measure.CHECKPOINTING: "torch.utils.checkpoint",
}
_NARROW_DTYPE = re.compile(r"data type <?(?:class ')?(?:numpy\.)?(?:u?int8|u?int16|float16|float32|bool)\b")
# Their users can't do what torch's users can.
OTHER_FRAMEWORKS = frozenset(
    {
        Speaker.TENSORFLOW_1,
        Speaker.TENSORFLOW,
        Speaker.JAX,
        Speaker.JAX_TPU,
        Speaker.PADDLE,
        Speaker.MXNET,
        Speaker.DARKNET,
        Speaker.CUPY,
        Speaker.RAPIDS,
        Speaker.CATBOOST,
        Speaker.LIGHTGBM,
        Speaker.MLX,
        Speaker.R,
        Speaker.ONNXRUNTIME,
        Speaker.TENSORRT,
        Speaker.LLAMA_CPP,
        Speaker.VLLM,
        Speaker.SGLANG,
        Speaker.TGI,
        Speaker.COMFYUI,
        Speaker.FAISS,
        Speaker.SPARK,
        Speaker.POLARS,
        Speaker.JOBLIB,
    }
)


def contradicts(advice: Advice, message: str) -> bool:
    """Return True if the message shows that the advice can't help."""
    if _NARROW_DTYPE.search(message) and '"float32"' in advice.command:
        return True
    if "version mismatch" in message:
        return "older CUDA" in advice.text
    if "ibv_" in message:
        return "DataLoader(" in advice.command  # InfiniBand pins memory, not the loader
    return "from device" in message and "MEM_FRACTION=0.95" in advice.command  # others hold the rest of the GPU


def is_possible(advice: Advice, kind: FailureKind, situation: Situation) -> bool:
    """Return True unless advice can't be carried out in a situation, or is followed there already."""
    return not (
        any(_FOLLOWED[measure] in advice.command for measure in situation.measures)
        or _lacks_step(advice, kind, situation)
        or _lacks_tool(advice, kind, situation)
        or _lacks_version(advice, situation)
        or _is_of_other_library(advice, situation)
    )


def _lacks_step(advice: Advice, kind: FailureKind, situation: Situation) -> bool:
    """Return True if advice is about a part of training that the program doesn't run."""
    if "backward pass" in advice.text:
        return situation.is_phase_certain and situation.phase in _WITHOUT_BACKWARD
    if "DataLoader(" not in advice.command or kind is not FailureKind.OOM_KILL:
        return False
    is_loading = situation.phase is Phase.LOADING and situation.speaker is Speaker.HUGGINGFACE
    return (
        is_loading
        or situation.phase is Phase.PREPROCESSING
        or (situation.speaker in _WITHOUT_LOADER and bool(situation.places & NOTEBOOKS))
    )


def _lacks_tool(advice: Advice, kind: FailureKind, situation: Situation) -> bool:
    """Return True if the system or the place doesn't have a tool."""
    words, places = f"{advice.text} {advice.command}", situation.places
    if situation.system is System.WINDOWS and ("dmesg" in words or "ulimit" in words or "docker" in advice.command):
        return True
    if "dmesg" in words and (places & (KERNEL_PLACES | _NO_ROOT_PLACES) or situation.system is System.MACOS):
        return kind not in _OF_DRIVER
    if "nvidia-smi" in words and (kind in _WITHOUT_NVIDIA or situation.system is System.MACOS):
        return True
    if "nohup" in advice.command and places & QUEUES:
        return True
    return "#SBATCH" in advice.command and bool(places) and Place.SLURM not in places


def _lacks_version(advice: Advice, situation: Situation) -> bool:
    """Return True if the torch of the program is too old."""
    words = f"{advice.text} {advice.command}"
    if "expandable_segments:True" in words and not situation.has_expandable_segments:
        return True
    return situation.is_ancient_torch and ("autocast" in words or "_ALLOC_CONF" in words)


def _is_of_other_library(advice: Advice, situation: Situation) -> bool:
    """Return True if advice is for the users of another library."""
    if situation.speaker is Speaker.R and ("pd." in advice.command or "np." in advice.command):
        return True
    uses_torch = any(word in advice.command for word in ("torch", "oomph.guard", "DataLoader("))
    uses_torch = uses_torch or "oomph.guard" in advice.text
    return uses_torch and situation.speaker in OTHER_FRAMEWORKS - {Speaker.VLLM, Speaker.PADDLE}
