"""A run's device, budget and plan, before anything of it is built."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch

from ..errors import WrongCall
from ..ledger import Prediction, predict
from ..machine import Target, find_target, this_device
from ..planner import Leeway, Plan, largest_batch, plan
from ..runner import BLOCK
from ..settings import Settings
from ..units import MIB
from ._dataset import DataSet
from ._job import detection_job
from ._material import Material
from ._network import STRIDES, yolov5
from ._order_form import LARGEST, OrderForm
from ._ranks import Ranks
from ._recipe import freeze
from ._tiles import cut, samples_of

_AMPERE = 8  # compute capability from which bf16 is fast
_ROOM = 64 * MIB
_BESIDE = 40 * MIB  # decoding, evaluation, pictures
_DRIFT = 0.12  # of what steps take: holes that the heap gets within an epoch or two; 4 to 21 % were seen
_RING = 4  # batches that the loader has in memory


def find_device(name: str | None) -> torch.device:
    """The device of that name; the first GPU if there is one, else the CPU, without.

    Raises:
        WrongCall: there is no such GPU.
    """
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type != "cuda":
        return device
    number, count = device.index or 0, torch.cuda.device_count()
    if number >= count:
        raise WrongCall(f"there is no GPU {number}, torch sees {count}", "name another one, or cpu")
    return torch.device("cuda", number)  # by its number: torch refuses to cap a GPU that has none


def fast_precision(device: torch.device) -> str:
    """The fast precision of a device: bf16 from Ampere on, fp16 before (whatever torch claims), fp32 on the CPU."""
    if device.type != "cuda":
        return "fp32"
    return "amp-bf16" if torch.cuda.get_device_capability(device)[0] >= _AMPERE else "amp-fp16"


def plan_run(form: OrderForm, data: DataSet, training: Material, device: torch.device, allocator: str) -> Plan:
    """The largest pieces that predictions say are comfortable, and what must be changed where none are.

    Raises:
        CannotFit: nothing that is allowed fits.
    """
    boxes = max(len(training.labels.boxes) / max(samples_of(training, cut(form.tiles, form.size)), 1), 1)
    job = detection_job(form.network, len(data.names), min(boxes * 4, 300), form.recipe, frozen=form.freeze)
    target = target_of(device)
    asked = Settings(
        batch=max(form.batch, 1),
        size=side_of(form.size),
        precision=form.precision or fast_precision(device),
        memory_format="channels_last",
        allocator=allocator,
    )
    budget = min(form.budget or target.memory, target.memory)
    if target.is_cpu:
        # The guard wants some room left, and batches wait in memory of their own.
        budget -= _ROOM + _RING * max(form.batch, 1) * 3 * side_of(form.size) ** 2
    known: dict[Settings, Prediction] = {}
    kept = kept_weights(form, len(data.names), device)

    def asked_for(settings: Settings) -> Prediction:
        # One sample of each kind of piece tells: how many there are changes nothing.
        piece = settings.micro_batch or settings.batch
        batch = min(settings.batch, 2 * piece)
        lean = replace(settings, batch=batch, micro_batch=piece if piece < batch else None)
        if lean not in known:
            waiting = 2 * max(form.batch, 1) - (settings.micro_batch or settings.batch)
            made = kept.beside(predict(job, lean, target))
            known[lean] = _here(made, target, max(waiting, 0) * 3 * side_of(form.size) ** 2)
        return known[lean]

    if form.batch == LARGEST:
        asked = largest_batch(asked, budget, asked_for)
    return plan(asked, budget, asked_for, least=2, leeway=_leeway(asked, form.allow, device))


def _leeway(asked: Settings, allowed: tuple[str, ...], device: torch.device) -> Leeway:
    """What may be changed beside the pieces."""
    lower = "amp-bf16" if device.type == "cpu" else fast_precision(device)
    side = int(asked.size) if isinstance(asked.size, int) else STRIDES[-1]
    return Leeway(
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
        WrongCall: the batch can't be shared out evenly.
    """
    if not ranks.are_several:
        return form
    with torch.device("meta"):
        model = yolov5(form.network, len(data.names))
    gradients = sum(one.numel() * one.element_size() for one in model.parameters())
    whole = target_of(device).memory
    if device.type == "cuda":
        room, exchange = whole, gradients + 2 * BLOCK
    else:
        room, exchange = whole // ranks.beside, min(gradients, BLOCK)
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
    """

    average: int
    copy: int

    def beside(self, made: Prediction) -> Prediction:
        """A prediction with all of that; the copy counts where an update with it is the peak."""
        update = dict(made.phases)["steady step, optimizer"] + self.copy
        more = self.average + max(update - int(made.allocated.value), 0)
        return made.with_memory(lambda figure: figure.plus(more))


def kept_weights(form: OrderForm, classes: int, device: torch.device) -> Kept:
    """What a run keeps beside its weights: on a GPU, the usual SGD and the average need no copy (see the guard)."""
    with torch.device("meta"):
        model = yolov5(form.network, classes)
    average = sum(one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers()))
    freeze(model, form.freeze)
    weights = sum(one.numel() * one.element_size() for one in model.parameters() if one.requires_grad)
    if device.type == "cuda":
        return Kept(average, 3 * weights if form.recipe.optimizer == "AdamW" else 0)
    return Kept(average, average + (3 if form.recipe.optimizer == "AdamW" else 2) * weights)


def _here(made: Prediction, target: Target, waiting: int) -> Prediction:
    """What this very process will need.

    On a GPU the whole batch and the next one lie there as bytes, and not only the piece in use. On the CPU, what the
    process has taken by now is known, and the heap of a long run has more holes than that of the steps predicted.
    """
    if not target.is_cpu:
        return made.with_memory(lambda figure: figure.plus(waiting))
    taken = psutil.Process().memory_info().rss + _BESIDE
    whole = made.allocated.plus(taken + int(_DRIFT * made.allocated.value))
    return replace(made, device=whole, host=whole)


def target_of(device: torch.device) -> Target:
    """What predictions are made for."""
    return find_target(this_device() if device.type == "cuda" else "cpu")


def side_of(size: int) -> int:
    """The size as the network takes it: a multiple of its largest stride."""
    return math.ceil(size / STRIDES[-1]) * STRIDES[-1]


def plan_facts(made: Plan) -> dict[str, Any]:
    """A plan as plain values, to be saved with the run."""
    return {
        "asked": vars(made.asked),
        "settings": vars(made.settings),
        "budget": made.budget,
        "asked_needs": made.before.device.value,
        "needs": made.after.device.value,
        "moves": [vars(move) for move in made.moves],
    }
