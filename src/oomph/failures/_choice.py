"""Choice of advice: at most three pieces, best first, that fit the numbers and the situation of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from . import _common_advice as common
from ._details import Detail
from ._fitting import OTHER_FRAMEWORKS, contradicts, is_possible
from ._gpu_advice import less_gpu_memory
from ._gpu_advice_by_speaker import GPU_ADVICE_WITHOUT_BATCHES
from ._host_advice import (
    compile_advice,
    less_ram,
    more_memory,
    pinned_advice,
    shared_memory_advice,
    swap_advice,
    time_advice,
)
from ._kinds import Advice, Cause, FailureKind, Family, Resource
from ._situation import KERNEL_PLACES, NOTEBOOKS, QUEUES, Phase, Situation, Speaker
from ._stated_batch import is_about_batches, with_batch
from ._wording_advice import wording_advice

MAX_ADVICE = 3
_MAX_WORDING = 600  # characters of a message that may have advice of their own

_GPU_KINDS = {
    FailureKind.CUDA_OOM,
    FailureKind.HIP_OOM,
    FailureKind.XPU_OOM,
    FailureKind.MPS_OOM,
    FailureKind.DRIVER_OOM,
    FailureKind.LIBRARY_OOM,
    FailureKind.LIBRARY_ERROR,
    FailureKind.FRAMEWORK_OOM,
}
_RAM_KINDS = {
    FailureKind.CPU_OOM,
    FailureKind.MEMORY_ERROR,
    FailureKind.BAD_ALLOC,
    FailureKind.ENOMEM,
    FailureKind.OOM_KILL,
    FailureKind.SCHEDULER_KILL,
    FailureKind.NOTEBOOK_DIED,
    FailureKind.WORKER_KILLED,
    FailureKind.WORKER_EXITED,
}
_ROCM_SMI = Advice(
    "List the processes on the GPU, and stop those that shouldn't run (an older run, a notebook):",
    "$ rocm-smi --showpids",
)
_NPU_SMI = Advice("List the processes on the NPU, and stop those that shouldn't run:", "$ npu-smi info")
_HUGE_ARRAY = (
    Advice("If most values are zero (one-hot, pairs), keep the array sparse:", "x = scipy.sparse.csr_matrix(x)"),
    Advice("If the size is right, compute it in chunks, with a smaller dtype:", 'x[start:stop].astype("float32")'),
)
_KERAS_NUMERICS = (
    Advice(
        "Lower the learning rate, and clip gradients:", "tf.keras.optimizers.Adam(learning_rate=1e-4, clipnorm=1.0)"
    ),
    Advice("Check the data for NaN, and normalize it:", "assert np.isfinite(x).all() and np.isfinite(y).all()"),
    Advice("Find the operation:", "tf.debugging.enable_check_numerics()"),
)
_DEEPSPEED_OVERFLOW = (
    Advice(
        "Use bf16 in the DeepSpeed config if the GPU supports it:",
        '"bf16": {"enabled": true}, "fp16": {"enabled": false}',
    ),
    Advice("Or lower the learning rate and clip gradients there:", '"gradient_clipping": 1.0'),
    Advice("Check the data and the loss for NaN:", "assert torch.isfinite(loss)"),
)
_NUMERICS = {Speaker.TENSORFLOW: _KERAS_NUMERICS, Speaker.DEEPSPEED: _DEEPSPEED_OVERFLOW}
_LOWER_RATE = Advice(
    "Lower the learning rate, clip gradients, and check the data for NaN:", "assert np.isfinite(x).all()"
)
# For users of other frameworks, whom the advice of the cause doesn't fit.
_WITHOUT_TORCH = {
    FailureKind.NON_FINITE_LOSS: _LOWER_RATE,
    FailureKind.NON_FINITE_GRADIENTS: _LOWER_RATE,
    FailureKind.SKIPPED_STEPS: _LOWER_RATE,
    FailureKind.BROKEN_LIBRARY: Advice(
        "Install the CUDA libraries that the framework was built for, and see which ones the system finds:",
        "$ ldconfig -p | grep -E 'cudart|cudnn|cublas'; echo $LD_LIBRARY_PATH",
    ),
    FailureKind.NO_KERNEL_IMAGE: Advice(
        "Install a build for the compute capability of this GPU:",
        "$ nvidia-smi --query-gpu=name,compute_cap --format=csv",
    ),
    FailureKind.NO_CUDA_BUILD: Advice(
        "Install the build of the framework for CUDA, and see which version the driver supports:", "$ nvidia-smi"
    ),
}
_JAX_ON_DEMAND = Advice(
    "JAX takes 75% of the GPU at the start, which may leave too little to cuDNN and cuBLAS. Let it allocate only what "
    "it needs:",
    "$ XLA_PYTHON_CLIENT_PREALLOCATE=false python train.py",
)
_ALLOC_CONF = re.compile(r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF")
_SMALLER_BATCHES = Advice("Use smaller batches or inputs.")
_READ_THE_START = Advice("Read the first error above this one: the others follow from it.")


def choose_advice(
    cause: Cause, details: Iterable[Detail], situation: Situation, resource: Resource, message: str, limit: float | None
) -> tuple[Advice, ...]:
    """Return at most three pieces of advice, best first: those of the numbers, of the situation, of the cause."""
    known = tuple(details)
    derived = [*(advice for detail in known for advice in detail.advice), *wording_advice(message[:_MAX_WORDING])]
    by_situation = _by_situation(cause, situation, resource, message.partition("\n")[0], limit)
    if any(detail.is_whole_reason for detail in known):
        by_situation = ()
    without_batches = any(detail.excludes_batches for detail in known) or _excludes_batches(situation, message)
    fitting: dict[str, Advice] = {}
    for advice in _without_batches(by_situation, situation, derived) if without_batches else (*derived, *by_situation):
        if is_possible(advice, cause.kind, situation) and not contradicts(advice, message):
            stated = with_batch(_translated(advice, cause.kind, message), situation.batch)
            fitting.setdefault(stated.command or stated.text, stated)
    chosen = tuple(fitting.values())[:MAX_ADVICE]
    without = common.SMALLER_INPUTS if without_batches else _SMALLER_BATCHES
    return chosen or (_WITHOUT_TORCH.get(cause.kind, without if cause.is_memory else _READ_THE_START),)


def _excludes_batches(situation: Situation, message: str) -> bool:
    """Return True if smaller batches don't exist or were tried."""
    is_of_weights = situation.is_phase_certain and situation.phase in {Phase.MOVING_WEIGHTS, Phase.CREATING_STATES}
    return situation.batch.size == 1 or is_of_weights or "No executable batch size found" in message


def _without_batches(
    by_situation: Iterable[Advice], situation: Situation, derived: Iterable[Advice]
) -> Iterator[Advice]:
    """Yield advice with another piece instead of smaller batches."""
    yield from (advice for advice in derived if not is_about_batches(advice))
    for advice in by_situation:
        if not is_about_batches(advice):
            yield advice
        elif situation.phase is not Phase.MOVING_WEIGHTS and situation.speaker in GPU_ADVICE_WITHOUT_BATCHES:
            yield GPU_ADVICE_WITHOUT_BATCHES[situation.speaker]


def _by_situation(
    cause: Cause, situation: Situation, resource: Resource, evidence: str, limit: float | None
) -> tuple[Advice, ...]:
    kind = cause.kind
    if kind in _RAM_KINDS:
        return _ram_advice(cause, situation, evidence, limit)
    if kind in {FailureKind.LIBRARY_OOM, FailureKind.LIBRARY_ERROR, FailureKind.DRIVER_OOM} and (
        resource is not Resource.RAM
    ):
        return _library_advice(cause, situation, evidence)
    if kind in _GPU_KINDS:
        on_host = (*less_ram(situation), common.CHUNKS, common.DOCTOR)
        return on_host if resource is Resource.RAM else _gpu_advice(cause, situation)
    if cause.family is Family.NUMERICS:
        return _NUMERICS.get(situation.speaker, cause.advice)
    return (*_limit_advice(cause, situation, resource, limit), *cause.advice)


def _gpu_advice(cause: Cause, situation: Situation) -> tuple[Advice, ...]:
    less = less_gpu_memory(situation)
    restart = (common.RESTART_KERNEL,) if situation.places & NOTEBOOKS else ()
    if situation.phase is Phase.MOVING_WEIGHTS and less:
        return (*restart, *less)
    advice = (*less, *cause.advice, *((common.SMALLER_INPUTS,) if cause.retryable else ()))
    return (*advice[:1], *restart, *advice[1:])


def _limit_advice(cause: Cause, situation: Situation, resource: Resource, limit: float | None) -> tuple[Advice, ...]:
    """Return advice about a limit of the place that the run is in."""
    kind = cause.kind
    if kind in {FailureKind.SHM_FULL, FailureKind.WORKER_BUS_ERROR}:
        return shared_memory_advice(situation)
    if kind is FailureKind.PINNED:
        return pinned_advice(situation)
    if kind is FailureKind.ADDRESS_SPACE and situation.places & QUEUES:
        return more_memory(situation, limit)
    if kind is FailureKind.TIME_LIMIT:
        return time_advice(situation)
    if kind is FailureKind.IMPOSSIBLE_SIZE and resource is Resource.RAM:
        return (*cause.advice[:1], *_HUGE_ARRAY)
    return ()


def _library_advice(cause: Cause, situation: Situation, evidence: str) -> tuple[Advice, ...]:
    by_speaker = () if situation.phase is Phase.MOVING_WEIGHTS else less_gpu_memory(situation)
    if situation.speaker is Speaker.JAX:
        return (_JAX_ON_DEMAND, *by_speaker[:1], *cause.advice)
    is_early = cause.kind is FailureKind.LIBRARY_ERROR or _is_at_start(evidence)
    if situation.speaker in OTHER_FRAMEWORKS and is_early:
        return (*by_speaker[1:2], *by_speaker[:1], *cause.advice)
    return (*cause.advice[:1], *by_speaker[:2], *cause.advice[1:])


def _is_at_start(evidence: str) -> bool:
    """Return True if a library could not even create its handle, which a smaller batch doesn't change."""
    return re.search(r"(?i)create (?:cublas|cudnn)", evidence) is not None


def _ram_advice(cause: Cause, situation: Situation, evidence: str, limit: float | None) -> tuple[Advice, ...]:
    less, more = less_ram(situation), more_memory(situation, limit)
    if "cc1" in evidence or "nvcc" in evidence:
        return (compile_advice(), *swap_advice(situation), *cause.advice)
    if cause.kind is FailureKind.SCHEDULER_KILL:
        return (*more, *less, *cause.advice[1:]) if more or less else cause.advice
    if cause.kind is FailureKind.OOM_KILL:
        if situation.places & KERNEL_PLACES:
            return (*more, *less, *cause.advice[1:2], *swap_advice(situation), *cause.advice[2:])
        count = 2 if situation.speaker in {Speaker.DEEPSPEED, Speaker.MLX} else 1
        return (*less[:count], *more, *cause.advice)
    if cause.kind is FailureKind.NOTEBOOK_DIED:
        return (*more, *less[:1], *cause.advice, *less[1:])
    if cause.kind in {FailureKind.WORKER_EXITED, FailureKind.WORKER_KILLED}:
        return (*less, *cause.advice, *more)
    return (*less[:2], *more, *cause.advice)


def _translated(advice: Advice, kind: FailureKind, message: str) -> Advice:
    """Return the advice with the tool of the device's maker, and the variable that the message names."""
    if "PYTORCH_ALLOC_CONF" in advice.command and (variable := _ALLOC_CONF.search(message)):
        text = advice.text.partition(" (before torch 2.9")[0].rstrip(":") + ":"
        return replace(advice, text=text, command=advice.command.replace("PYTORCH_ALLOC_CONF", variable[0]))
    if "nvidia-smi" not in advice.command:
        return advice
    if "NPU out of memory" in message:
        return _NPU_SMI
    return _ROCM_SMI if kind is FailureKind.HIP_OOM else advice
