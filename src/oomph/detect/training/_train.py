"""Training from its order form: the data read, the plan made, the course run."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import UsageError
from ...planner import Plan
from ...units import count_of
from .._device import settle_allocator
from ..dataset._data_yaml import DataSet, as_one_class, label_path, read_dataset, read_split, shared_images
from ..dataset._indexed_split import Material, prepare
from ..dataset._tiles import cut, proposal
from ..model._anchors import box_sizes, check_anchors
from ..model._network import STRIDES
from ._config import OrderForm
from ._dist import ALONE, Ranks
from ._planning import Place, budget_of, find_device, plan_facts, plan_run, share_out, side_of
from ._progress import Outcome, Teller
from ._run_dir import Keeper, Onlooker
from ._saved_config import ORDER, Order, order_document
from ._settings_file import changed_settings, settings_text
from ._trainer import Course


def train(form: OrderForm, teller: Teller, *, resume: bool = False, ranks: Ranks = ALONE) -> Outcome:
    """Train a detector as ordered; a resumed run goes on from the last checkpoint in its folder.

    Args:
        form: what is asked for; the same on every rank.
        teller: is told how it goes; let it be silent on ranks other than the first.
        resume: go on with the run in the form's folder.
        ranks: those of `join_ranks`, which each call this.

    Raises:
        UsageError: the data, the weights or the settings can't be used.
        CannotFit: nothing fits into the budget.
        RankLost: another rank is gone, or could not begin.
    """
    # The precision of a resumed run is the one that was settled on.
    if changed := changed_settings(replace(form, precision=None) if resume else form):
        teller.said(f"settings: {', '.join(changed)}")
    data = read_dataset(form.data)
    splits = read_split(data, "train", form.tolerated), read_split(data, "val", form.tolerated)
    if form.single_class:
        data, splits = as_one_class(data, splits)
    training, held = (
        prepare(split, form.tolerated, partial(teller.counted, f"{split.name}: headers of images")) for split in splits
    )
    _tell_data(data, training, held, teller)
    _check_boxes(data, training, held, teller)
    if same := shared_images(*splits):
        every = len(splits[1].images)
        worth = "nothing" if same == every else "little"
        teller.said(f"{same} of {every} val images are train images too: the mAP means {worth}")
    if (side := side_of(form.size)) != form.size:
        teller.said(f"images are trained at {side} pixels a side: {form.size} is no multiple of {STRIDES[-1]}")
    device = find_device(ranks.device_name(form.device))
    if not form.tiles and (words := proposal(training, form.size)) is not None:
        teller.said(words)
    place = Place(device, settle_allocator(device), ranks)
    asked, form = form, replace(form, budget=budget_of(form, device))
    plans = ranks.everywhere(
        lambda: plan_run(
            share_out(form, data, device, ranks),
            data,
            training,
            place,
            lambda done: teller.counted("plan: settings predicted", done, None),
        )
    )
    made = min(plans, key=_smallness)
    if ranks.are_several:
        teller.said(f"{ranks.ranks} ranks, each with {made.settings.batch} images of a batch; the plan is for one rank")
    teller.planned(made)
    form = settled(form, made, ranks.ranks)
    tiles = cut(form.tiles, form.size)
    sizes = box_sizes(training.labels, training.shapes, form.size, tiles.side if tiles else math.inf)
    anchors = check_anchors(sizes, ratio=form.recipe.anchor_ratio)
    keeper = Keeper(form.folder) if ranks.is_first else Onlooker(form.folder, ranks.rank)
    keeper.save_json("plan.json", {**plan_facts(made), "ranks": ranks.ranks})
    aside = {"train": training.set_aside, "val": held.set_aside}
    keeper.save_json("set_aside.json", {name: [vars(one) for one in found] for name, found in aside.items()})
    if not resume:
        keeper.save_json(ORDER, order_document(Order(asked, settled(asked, made, ranks.ranks))))
        keeper.save_text("settings.yaml", settings_text(asked))
    # A resumed run has its weights in the checkpoint; those that it began with may be gone.
    course = Course(replace(form, weights=None) if resume else form, data, (training, held), made, device, teller)
    course.build(anchors, keeper, ranks)
    if resume:
        course.resume()
    return course.run()


def _smallness(made: Plan) -> tuple[int, int, int]:
    """What the plans of ranks are compared by: all take the smallest."""
    chosen = made.settings
    return _side(made), chosen.batch, chosen.micro_batch or chosen.batch


def settled(form: OrderForm, made: Plan, ranks: int = 1) -> OrderForm:
    """The order with what the plan has decided of it: a resumed run must not decide anew."""
    chosen = made.settings
    return replace(form, batch=chosen.batch * ranks, size=_side(made), precision=chosen.precision)


def _side(made: Plan) -> int:
    """The side of its images."""
    size = made.settings.size
    assert isinstance(size, int)  # noqa: S101  detectors are asked for one side
    return size


def _tell_data(data: DataSet, training: Material, held: Material, teller: Teller) -> None:
    for name, material in (("train", training), ("val", held)):
        boxes = str(len(material.labels.boxes)) + (" box" if len(material.labels.boxes) == 1 else " boxes")
        teller.said(f"{name}: {count_of(len(material.index), 'image')}, {boxes}")
        for one in material.set_aside:
            teller.said(f"{name}: {one}")
    if data.download:
        teller.said(f"the data's `download:` was not run: {data.download.splitlines()[0][:80]}")


def _check_boxes(data: DataSet, training: Material, held: Material, teller: Teller) -> None:
    if not len(held.labels.boxes):
        teller.said("val has no boxes at all: the mAP will be 0")
    if not len(training.labels.boxes):
        place = label_path(Path(training.index.path(0)))
        raise UsageError(
            f"the {len(training.index)} train images of {data.file} have no boxes at all; "
            f"labels were looked for in such files as {place}",
            "put the labels there",
        )
