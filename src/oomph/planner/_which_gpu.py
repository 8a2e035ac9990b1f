"""On which GPUs of the catalog a Job runs, with which settings, and how fast."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..errors import CannotFit
from ..job import Job
from ..machine import GpuSpec, Target, cloud_machines_with, gpu_specs, target_of
from ..settings import Settings
from ..units import format_size
from ._job_plan import plan
from ._predictor import JobPredictor
from ._request import PERMISSIONS, PlanRequest
from ._search import Candidate, Correction, Search, Stage
from .changes import CHANGES

_TESLA_P100 = (6, 0)  # the oldest capability that torch's wheels support


@dataclass(frozen=True)
class GpuOption:
    """A GPU and the fastest settings with which a Job runs on it.

    Attributes:
        gpu: the GPU's name.
        memory: bytes that programs can use.
        machines: names of cloud machines with it.
        settings: the settings; None if it doesn't run.
        need: bytes that the settings, or the smallest ones, may need up to.
        seconds: estimated seconds of a step; None if it doesn't run.
    """

    gpu: str
    memory: int
    machines: tuple[str, ...]
    settings: Settings | None
    need: int
    seconds: float | None


def which_gpus(
    job: Job,
    settings: Settings,
    allow: tuple[str, ...] = (),
    progress: Callable[[int, int], object] | None = None,
) -> tuple[GpuOption, ...]:
    """Plan a Job on every NVIDIA GPU of the catalog, from little memory to much.

    GPUs of one generation, which is the first number of their compute capability, share their traces.

    Args:
        job: what to train.
        settings: how it should be trained.
        allow: what may change although it affects results.
        progress: called with the number of generations that are done, and their number.
    """
    generations: dict[int, list[tuple[GpuSpec, Target]]] = defaultdict(list)
    for spec in gpu_specs():
        if spec.compute_capability is not None and spec.bandwidth is not None and spec.rates.fp32 is not None:
            target = target_of(spec)
            if target.capability >= _TESLA_P100:
                generations[target.capability[0]].append((spec, target))
    options: list[GpuOption] = []
    for done, gpus in enumerate(generations.values()):
        if progress is not None:
            progress(done, len(generations))
        options += _options(job, settings, allow, gpus)
    return tuple(sorted(options, key=lambda option: (option.memory, option.seconds or float("inf"))))


def next_smaller(job: Job, settings: Settings, options: Sequence[GpuOption]) -> str:
    """Return one sentence: what would make the largest GPU work that is smaller than all that do."""
    smallest = next((option for option in options if option.settings is not None), None)
    too_small = [option for option in options if smallest is None or option.memory < smallest.memory]
    if not too_small:
        return "It runs on the smallest GPU of the catalog."
    gpu = too_small[-1]
    try:
        planned = plan(job, settings, gpu.gpu, allow=PERMISSIONS)
    except CannotFit as error:
        return f"On {gpu.gpu} ({format_size(gpu.memory)}) nothing helps: {error.why}."
    kinds = dict.fromkeys(change.permission for change in CHANGES if change.is_in(settings, planned.settings))
    allow = ",".join(kind for kind in kinds if kind is not None)
    return f"{gpu.gpu} ({format_size(gpu.memory)}) would work with --allow {allow}."


def _options(
    job: Job, settings: Settings, allow: tuple[str, ...], gpus: Sequence[tuple[GpuSpec, Target]]
) -> list[GpuOption]:
    """Return the options on GPUs of one generation, traced for the largest one of its most frequent capability."""
    counts = Counter(target.capability for _, target in gpus)
    typical = max((target for _, target in gpus), key=lambda target: (counts[target.capability], target.processors))
    search = Search(PlanRequest(settings, typical, typical.memory, allow), JobPredictor(job, typical))
    stage = search.stages(settings)[-1]
    candidates = search.candidates(stage)
    correction = Correction.by(search.predictor.predict(candidates[0].settings), candidates[0].memory)
    return [_option(spec, target, stage, candidates, correction) for spec, target in gpus]


def _option(
    spec: GpuSpec, target: Target, stage: Stage, candidates: Sequence[Candidate], correction: Correction
) -> GpuOption:
    machines = tuple(machine.name for found in cloud_machines_with(spec).values() for machine in found)
    fitting = [candidate for candidate in candidates if correction.need(candidate) <= target.memory]
    if not fitting:
        need = min(correction.need(candidate) for candidate in candidates)
        return GpuOption(spec.name, target.memory, machines, None, int(need), None)
    profile = stage.profile.on(target)
    timed = [_timed(candidate, profile.seconds) for candidate in fitting]
    best = min(timed, key=lambda candidate: candidate.rank)
    return GpuOption(spec.name, target.memory, machines, best.settings, int(correction.need(best)), best.seconds)


def _timed(candidate: Candidate, seconds: Callable[[int, Sequence[str]], float]) -> Candidate:
    settings = candidate.settings
    paths = settings.checkpointing if isinstance(settings.checkpointing, tuple) else ()
    return replace(candidate, seconds=seconds(settings.micro_batch or settings.batch, paths))
