"""A run's device, budget and plan, before anything of it is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import psutil
import torch

from ...errors import CannotFit, UsageError
from ...job import Job
from ...machine import Target, find_target, this_device
from ...planner import AllowedChanges, Plan, largest_batch, plan
from ...prediction import Prediction, predict
from ...recovery import BUCKET_BYTES
from ...settings import Settings
from ...units import MIB, format_size
from ..dataset._data_yaml import DataSet
from ..dataset._indexed_split import Material
from ..dataset._tiles import cut, samples_of
from ..model._network import STRIDES, yolov5
from ._config import LARGEST, OrderForm
from ._dist import ALONE, Ranks
from ._hyperparameters import freeze
from ._job import detection_job

_AMPERE = 8  # compute capability from which bf16 is fast
_ROOM = 64 * MIB
_HOLES = 0.35  # of what a step takes and gives back: holes that the heap gets
_SETTLED = 20  # steps within which it gets them
_RING = 4  # batches that the loader has in memory


def find_device(name: str | None) -> torch.device:
    """The device of that name; the first GPU if there is one, else the CPU, without.

    Raises:
        UsageError: there is no such GPU.
    """
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type != "cuda":
        return device
    number, count = device.index or 0, torch.cuda.device_count()
    if number >= count:
        raise UsageError(f"there is no GPU {number}, torch sees {count}", "name another one, or cpu")
    return torch.device("cuda", number)  # by its number: torch refuses to cap a GPU that has none


def fast_precision(device: torch.device) -> str:
    """The fast precision of a device: bf16 from Ampere on, fp16 before (whatever torch claims), fp32 on the CPU."""
    if device.type != "cuda":
        return "fp32"
    return "amp-bf16" if torch.cuda.get_device_capability(device)[0] >= _AMPERE else "amp-fp16"


@dataclass(frozen=True)
class Place:
    """Where a run goes: its device, how that one's allocator is set, and who else is there."""

    device: torch.device
    allocator: str
    ranks: Ranks = ALONE


def plan_run(
    form: OrderForm,
    data: DataSet,
    training: Material,
    place: Place,
    progress: Callable[[int], object] | None = None,
) -> Plan:
    """The largest pieces that predictions say are comfortable, and what must be changed where none are.

    `progress` is told how many settings were predicted, each of which takes a second or a few.

    Raises:
        CannotFit: nothing that is allowed fits.
    """
    samples = max(samples_of(training, cut(form.tiles, form.size)), 1)
    boxes = max(len(training.labels.boxes) / samples, 1)
    own, device = math.ceil(samples / place.ranks.ranks), place.device  # no batch of a rank has more
    target = target_of(device)
    precision = form.precision or fast_precision(device)
    asked = Settings(
        batch=max(form.batch, 1),
        size=side_of(form.size),
        precision=precision,
        memory_format="channels_last",
        allocator=place.allocator,
        optimizer=_update(precision, device),
    )
    whole = min(form.budget or target.memory, target.memory)
    # On the CPU the guard wants some room left, and batches wait in memory of their own.
    off = _ROOM + _RING * min(asked.batch, own) * 3 * side_of(form.size) ** 2 if target.is_cpu else 0
    run = _Run(
        job=detection_job(form.network, len(data.names), min(boxes * 4, 300), form.recipe, frozen=form.freeze),
        target=target,
        kept=kept_weights(form, len(data.names), asked.optimizer, device),
        images=own,
        steps=form.epochs * math.ceil(own / asked.batch),
        progress=progress,
    )
    if form.batch == LARGEST:
        asked = _largest(asked, whole - off, run)
    try:
        made = plan(asked, whole - off, run.needs, least=2, leeway=_leeway(asked, form.allow, device))
    except CannotFit as error:
        if not off:
            raise
        words = f"{error.why}: {format_size(whole)} less {format_size(off)} for batches that wait and the guard's room"
        raise CannotFit(words, error.fix) from None
    chosen = replace(made.settings, optimizer=_update(made.settings.precision, device))
    return replace(made, settings=chosen, reserved=off)


def _largest(asked: Settings, budget: int, run: _Run) -> Settings:
    """The largest batch that fits, no larger than the data; where two images don't, two, to be made to fit."""
    everything = replace(asked, batch=run.images)
    if run.needs(everything).device.high <= budget:
        return everything
    try:
        found = largest_batch(asked, budget, run.needs)
    except CannotFit:
        found = asked
    return replace(found, batch=min(max(found.batch, 2), run.images))


@dataclass
class _Run:
    """What settings would need in a run, each predicted once."""

    job: Job
    target: Target
    kept: Kept
    images: int
    steps: int
    progress: Callable[[int], object] | None = None
    known: dict[tuple[Settings, int], Prediction] = field(default_factory=dict)

    def needs(self, settings: Settings) -> Prediction:
        """What this process will need."""
        # One sample of each kind of piece tells: how many there are changes nothing.
        piece = min(settings.micro_batch or settings.batch, self.images)
        batch = min(settings.batch, 2 * piece, self.images)
        lean = replace(settings, batch=batch, micro_batch=piece if piece < batch else None)
        most = min(settings.batch, self.images)
        if (lean, most) not in self.known:
            made = self.kept.beside(predict(self.job, lean, self.target))
            self.known[lean, most] = self._here(made, (2 * most - piece) * 3 * _side(settings) ** 2)
            if self.progress is not None:
                self.progress(len(self.known))
        return self.known[lean, most]

    def _here(self, made: Prediction, waiting: int) -> Prediction:
        """What this very process will need.

        On a GPU the whole batch and the next one lie there as bytes, and not only the piece in use. On the CPU, what
        the process has taken by now is known, and its heap gets holes between what steps take and give back.
        """
        if not self.target.is_cpu:
            return made.with_memory(lambda figure: figure.plus(waiting))
        phases = dict(made.phases)
        passing = max(phases.values()) - phases["steady step, optimizer"]
        holes = int(_HOLES * min(self.steps / _SETTLED, 1) * passing)
        whole = made.allocated.plus(psutil.Process().memory_info().rss + holes)
        return replace(made, device=whole, host=whole)


def _side(settings: Settings) -> int:
    return int(settings.size) if isinstance(settings.size, int) else STRIDES[-1]


def _leeway(asked: Settings, allowed: tuple[str, ...], device: torch.device) -> AllowedChanges:
    """What may be changed beside the pieces."""
    lower = "amp-bf16" if device.type == "cpu" else fast_precision(device)
    side = _side(asked)
    return AllowedChanges(
        checkpointing=asked.checkpointing == "none",
        precision=None if asked.precision.startswith("amp") else lower,
        sides=tuple(range(side - STRIDES[-1], max(side // 2, STRIDES[-1]) - 1, -STRIDES[-1])),
        allowed=allowed,
    )


def share_out(form: OrderForm, data: DataSet, device: torch.device, ranks: Ranks) -> OrderForm:
    """What one of several ranks is planned for: its share of the batch and of the machine.

    Ranks on the CPU live in the same memory. On a GPU, torch's DistributedDataParallel holds room for all gradients,
    and the guard two blocks to exchange them through; on the CPU, as much of a block as is used.

    Raises:
        UsageError: the batch can't be shared out evenly.
    """
    if not ranks.are_several:
        return form
    with torch.device("meta"):
        model = yolov5(form.network, len(data.names))
    gradients = sum(one.numel() * one.element_size() for one in model.parameters())
    whole = target_of(device).memory
    if device.type == "cuda":
        room, exchange = whole, gradients + 2 * BUCKET_BYTES
    else:
        room, exchange = whole // ranks.beside, min(gradients, BUCKET_BYTES)
    return replace(form, batch=ranks.share(form.batch), budget=min(form.budget or room, room) - exchange)


def budget_of(form: OrderForm, device: torch.device) -> int | None:
    """What the device, or this process on the CPU, may take."""
    if form.spare is None:
        return form.budget
    if device.type == "cuda":
        return target_of(device).outside[1] + form.spare
    # torch imports much more when it makes its first optimizer and its first fake tensor.
    predict(detection_job("n", 1), Settings(batch=2, size=STRIDES[-1]), "cpu")
    return psutil.Process().memory_info().rss + form.spare


@dataclass(frozen=True)
class Kept:
    """Weights that a run holds beside those that are trained, in bytes.

    Attributes:
        average: the moving average, always.
        copy: what the guard copies before an update, and frees after it.
        apart: whether the copy lies apart from what steps take. In a heap it does, being of other sizes; on a GPU it
            lies where the activations were.
    """

    average: int
    copy: int
    apart: bool = False

    def beside(self, made: Prediction) -> Prediction:
        """A prediction with all of that; a copy that isn't apart counts where an update with it is the peak."""
        update = dict(made.phases)["steady step, optimizer"] + self.copy
        more = self.average + (self.copy if self.apart else max(update - int(made.allocated.value), 0))
        return made.with_memory(lambda figure: figure.plus(more))


def _update(precision: str, device: torch.device) -> str:
    """How weights are updated: on a GPU in one kernel, which is launched fast, and needs no memory and so no copy.

    With fp16 such a kernel looks itself whether gradients overflowed, and nobody can say how often a step is skipped.
    """
    return "fused" if device.type == "cuda" and precision != "amp-fp16" else "given"


def kept_weights(form: OrderForm, classes: int, update: str, device: torch.device) -> Kept:
    """What a run keeps beside its weights: the average, and before an update a copy.

    On a GPU only before the first one, which has no state yet (see guard): of the weights, and of the gradients that
    SGD with Nesterov's momentum may write to, unless it is fused.
    """
    with torch.device("meta"):
        model = yolov5(form.network, classes)
    average = sum(one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers()))
    freeze(model, form.freeze)
    weights = sum(one.numel() * one.element_size() for one in model.parameters() if one.requires_grad)
    if device.type == "cuda":
        return Kept(average, weights if form.recipe.optimizer == "AdamW" or update == "fused" else 2 * weights)
    return Kept(average, average + (3 if form.recipe.optimizer == "AdamW" else 2) * weights, apart=True)


def target_of(device: torch.device) -> Target:
    """What predictions are made for."""
    return find_target(this_device() if device.type == "cuda" else "cpu")


def side_of(size: int) -> int:
    """The size as the network takes it: a multiple of its largest stride."""
    return math.ceil(size / STRIDES[-1]) * STRIDES[-1]


def plan_facts(made: Plan) -> dict[str, Any]:
    """A plan as plain values, to be saved with the run."""
    return {
        "requested": vars(made.requested),
        "settings": vars(made.settings),
        "budget": made.budget,
        "reserved": made.reserved,
        "requested_need": made.requested_need.device.value,
        "planned_need": made.planned_need.device.value,
        "changes": [vars(change) for change in made.changes],
    }
