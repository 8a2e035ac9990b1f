"""A training run under way, to its last checkpoint."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from .. import changes
from ..data import Batch, Cache, HostOptions, Loader, Share, on_device, read_room, usable_cores
from ..errors import OomphError
from ..machine import peak_resident
from ..monitor import Recorder, Sampler
from ..planner import Plan
from ..runner import Guard, StepReport, guard
from ._anchors import AnchorCheck
from ._batch import shrink_batch
from ._checkpoint import load_weights, read_weights
from ._circumstances import Circumstances
from ._dataset import DataSet
from ._ema import Ema
from ._keeping import Keeper
from ._loss import DetectionLoss, Positives, split_batch
from ._material import Material, Samples, gather
from ._metrics import Scores, has_metrics, score
from ._network import Yolov5, yolov5
from ._order_form import OrderForm
from ._planning import side_of
from ._ranks import ALONE, Ranks
from ._recipe import build_optimizer, freeze
from ._results import write_results
from ._schedule import Moment, Schedule, set_rates, should_stop
from ._sheets import found_sheet, training_sheet
from ._teller import Outcome, Teller
from ._tiles import cut, window_loader
from ._validation import decoding_budget, results_by_image, validation_loader

_PATIENCE = 60.0  # seconds: scoring many images may keep a rank from giving a sign of life for a while

_MOST_WORKERS = 16
_AHEAD = 4  # batches that processes make while an epoch is validated
_SPARE = 0.25  # of the memory that is left, for copies of images
_SELDOM = 10  # iterations between two looks at the loss on a GPU
_CHECKING = 4  # threads that load images to validate with


class _Group:
    """The loss, weighed so that batches whose gradients are averaged by the guard are summed, as the recipe has it."""

    def __init__(self, loss: DetectionLoss) -> None:
        self._loss, self.factor = loss, 1.0
        self._whole: Positives | None = None
        self._count: Callable[[Any], Positives] | None = None

    def share(self, batch: Any, ranks: Ranks) -> None:
        """Count the positives of all ranks' batches; before the step, where no rank is missing because it ran short."""
        if ranks.are_several:
            self._count = self._count or self._loss.counter()
            own = self._count(batch)
            *counts, images = ranks.summed([*own.counts.tolist(), own.images])
            self._whole = Positives(torch.tensor(counts, dtype=own.counts.dtype), images)

    def normaliser(self, batch: Any) -> Any:
        return self._whole or self._loss.normaliser(batch)

    def __call__(self, outputs: Any, targets: Tensor, normaliser: Any = None) -> Tensor:
        return self._loss(outputs, targets, normaliser) * self.factor


class Course:
    """A run under way."""

    def __init__(
        self,
        form: OrderForm,
        data: DataSet,
        material: tuple[Material, Material],
        made: Plan,
        device: torch.device,
        teller: Teller,
    ) -> None:
        self.form, self.data, self.plan, self.device, self.teller = form, data, made, device, teller
        self.training, self.held = material
        self.rows: list[dict[str, Any]] = []
        self.iteration = self.retries = 0
        self.total = 0.0  # the loss, averaged over the last iterations
        self.process = psutil.Process()
        self.saved = time.monotonic()

    def build(self, anchors: AnchorCheck, keeper: Keeper, ranks: Ranks = ALONE) -> None:
        """Make the network, the optimizer, the loaders and the guard."""
        form = self.form
        self.ranks, self.share = ranks, ranks.share(form.batch)
        torch.manual_seed(form.seed)
        self.keeper = keeper
        side = side_of(form.size)
        model = self._network(anchors).to(self.device)
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        recipe = form.recipe
        self.loss = _Group(DetectionLoss(model, recipe.gains, side, recipe.anchor_ratio, recipe.label_smoothing))
        self.optimizer = build_optimizer(model, form.recipe, form.batch)
        self.average = Ema(model)
        if self.plan.settings.checkpointing == "blocks":  # after the average, which is a copy without it
            changes.checkpoint(model, changes.blocks(model))
        self.recorder = Recorder(keeper.record_file)
        precision = self.plan.settings.precision
        self.guard: Guard = guard(
            model=DistributedDataParallel(model) if ranks.are_several else model,
            optimizer=self.optimizer,
            loss=self.loss,
            split=split_batch,
            pieces=len(self.plan.settings.pieces),
            clip=form.recipe.clip,
            ema=self.average,
            precision=precision if precision.startswith("amp") else None,
            budget=form.budget,
            allow=form.allow,
            resize=shrink_batch if "size" in form.allow else None,
            checkpoint=lambda _: self.save(),
            recorder=self.recorder,
            patience=_PATIENCE,
        )
        self._leave_cores()
        self.loader = self._samples(side)
        self.last = self.loader.last
        each = self.plan.settings.micro_batch or self.share
        tiles = cut(form.tiles, side)
        self.checks = validation_loader(self.held, side, each, tiles=tiles, ranks=ranks, threads=_CHECKING)
        self.schedule = Schedule(form.recipe, form.batch, len(self.loader), form.epochs)

    def _samples(self, side: int) -> Loader:
        """Training samples: of whole images, or windows of them, which threads cut well enough."""
        form, ranks, augmentation = self.form, self.ranks, self.form.recipe.augmentation
        if (tiles := cut(form.tiles, side)) is not None:
            threads = form.threads if self.device.type == "cuda" else self._loading()
            return window_loader(
                self.training,
                tiles,
                side,
                self.share,
                augmentation,
                seed=form.seed,
                rank=ranks.rank,
                ranks=ranks.ranks,
                threads=threads,
            )
        return Loader(
            self.training.index,
            side,
            self.share,
            recipe=Samples(self.training.labels, augmentation),
            collate=gather,
            shuffle=True,
            seed=form.seed,
            share=Share(ranks.rank, ranks.ranks),
            budget=decoding_budget(ranks),
            host=self._hands(),
        )

    def _hands(self) -> HostOptions:
        """Who loads images: threads, or beside a GPU processes, as Python's lock would hold up the training too."""
        if self.device.type == "cuda":
            return HostOptions(workers=self._loading(), prefetch=_AHEAD, cache=self._copies())
        return HostOptions(threads=self._loading())

    def _loading(self) -> int:
        """How many load images: on the CPU few, since the training needs the cores."""
        cores = usable_cores()
        usual = min(max(cores - 2, 1), _MOST_WORKERS) if self.device.type == "cuda" else max(cores // 4, 1)
        return self.form.threads or usual

    def _leave_cores(self) -> None:
        """Give torch the cores that loading leaves: threads that wait for each other stand still.

        Beside a GPU torch gets one: of many, one would always wait for a core that a worker has.
        """
        torch.set_num_threads(1 if self.device.type == "cuda" else max(usable_cores() - self._loading(), 1))

    def _copies(self) -> Cache | None:
        """Decoded copies of all images, each of which a mosaic asks for four times an epoch, where they fit easily."""
        size = len(self.training.index) * 3 * side_of(self.form.size) ** 2
        return Cache(None, size) if size < read_room().memory * _SPARE else None

    def _network(self, anchors: AnchorCheck) -> Yolov5:
        form, classes = self.form, len(self.data.names)
        model = yolov5(form.network, classes, anchors.anchors if anchors.fitted else None)
        if form.weights is not None:
            words = load_weights(model, read_weights(form.weights))
            self.teller.said(words or f"weights of {form.weights}")
        elif anchors.fitted:
            shares = f"{anchors.fitted_recall:.1%} of the boxes, before {anchors.recall:.1%}"
            self.teller.said(f"anchors fitted to the data: they match {shares}")
        if form.freeze:
            self.teller.said(f"{freeze(model, form.freeze):,} weights stay as they are")
        return model

    def resume(self) -> None:
        """Go on where the last checkpoint was taken."""
        state = self.keeper.load_state()
        self.ranks.everywhere(lambda: self._go_on(state))
        self.teller.said(f"resumed at iteration {self.iteration} of {self.schedule.iterations}")

    def _go_on(self, state: dict[str, Any]) -> None:
        if self.ranks.is_first:
            self._circumstances(int(state["loader"]["epoch"])).check(state["circumstances"])
        self.guard.load_state_dict(state["guard"])
        self.rows = list(state["rows"])
        self.iteration, self.total = int(state["iteration"]), float(state["total"])
        self.average.updates = int(state["average_updates"])
        # Each rank goes to its own share of the same iteration; the saved place is the first one's.
        own = self.loader.state_dict(divmod(self.iteration, self.schedule.per_epoch))
        self.loader.load_state_dict(state["loader"] if self.ranks.is_first else own)

    def _circumstances(self, epoch: int) -> Circumstances:
        order = str(self.loader.state_dict((epoch, 0))["order"])
        return Circumstances(self.data.names, len(self.training.index), self.ranks.ranks, order)

    @property
    def is_whole(self) -> bool:
        """Whether a checkpoint of the first rank is one of all: before an update each has gradients of its own."""
        return not self.ranks.are_several or self.guard.pending is None

    def save(self) -> None:
        """Take a checkpoint.

        Raises:
            OomphError: gradients that only other ranks have would be missing in it.
        """
        if not self.is_whole:
            raise OomphError("gradients of the other ranks would be missing", "resume from the checkpoint before")
        self.saved = time.monotonic()
        place = divmod(self.guard.steps, self.schedule.per_epoch)
        self.keeper.save_state(
            {
                "guard": self.guard.state_dict(),
                "loader": self.loader.state_dict(place),
                "circumstances": self._circumstances(place[0]).facts(),
                "rows": self.rows,
                "iteration": self.guard.steps,  # ours counts a step only when the guard has returned from it
                "total": self.total,
                "average_updates": self.average.updates,
            }
        )

    def run(self) -> Outcome:
        """Train to the end."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.recorder.close)
            stack.callback(self.guard.close)
            stack.callback(self.loader.close)
            stack.callback(self.checks.close)
            self.recorder.event("prediction", **self._predicted())
            stack.enter_context(Sampler(self.recorder))
            stack.enter_context(self.guard.signals())
            begin = self.iteration // self.schedule.per_epoch
            self.ahead = self._batches(begin)
            for epoch in range(begin, self.form.epochs):
                self._epoch(epoch)
                if should_stop([row.get("fitness") or 0.0 for row in self.rows], self.form.patience):
                    self.teller.said(f"no improvement for {self.form.patience} epochs: the run ends")
                    break
        best = max((row for row in self.rows if row.get("fitness") is not None), key=_fitness, default=None)
        return Outcome(
            folder=str(self.form.folder),
            epochs=len(self.rows),
            best=best,
            plan=self.plan,
            measured=max([self._memory(), *(row["memory"] for row in self.rows)]),
            predicted=self._reckoned(),
            retries=self.retries,
        )

    def _reckoned(self) -> int:
        """The predicted figure that is measured: what torch allocates, or the whole process on the CPU."""
        return self._predicted()["allocated" if self.device.type == "cuda" else "host"]

    def _predicted(self) -> dict[str, int]:
        after = self.plan.after
        figures = {"allocated": after.allocated, "reserved": after.reserved, "host": after.host}
        return {name: int(figure.value) for name, figure in figures.items()}

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch, which are made from now on."""
        self.loader.set_epoch(epoch)
        return on_device(self.loader, self.device)

    def _epoch(self, epoch: int) -> None:
        self.began, self.images = time.perf_counter(), 0
        for batch in self.ahead:
            report = self._step(batch, epoch)
            if time.monotonic() - self.saved > self.form.minutes * 60 and self.is_whole:
                self.save()
            self.retries += report.retries
        speed = self._speed()
        if epoch + 1 < self.form.epochs:
            self.ahead = self._batches(epoch + 1)  # made while this one is validated
        self._end_epoch(epoch, speed, report)

    def _speed(self) -> float:
        """Images a second in this epoch, of all ranks."""
        return self.images * self.ranks.ranks / max(time.perf_counter() - self.began, 1e-9)

    def _step(self, batch: Batch, epoch: int) -> StepReport:
        if self.iteration == 0 and self.ranks.is_first:
            self.keeper.save_picture("train_batch", training_sheet(batch.images, batch.targets, self.data.names))
        moment: Moment = self.schedule.at(self.iteration)
        set_rates(self.optimizer, moment)
        # The guard averages the batches up to an update by their images, and the ranks; the recipe sums them.
        self.loss.factor = moment.images(self.share, self.last) * self.ranks.ranks / len(batch.images)
        self.loss.share((batch.images, batch.targets), self.ranks)
        report = self.guard.step((batch.images, batch.targets), update=moment.steps)
        self.iteration += 1
        self.images += len(batch.images)
        done = self.iteration - epoch * self.schedule.per_epoch
        # Reading the loss waits for the GPU.
        if self.device.type != "cuda" or self.iteration % _SELDOM == 0 or done == self.schedule.per_epoch:
            value = float(report.loss) / (self.loss.factor * len(batch.images))
            self.total = value if self.total == 0 else 0.98 * self.total + 0.02 * value
            facts = {
                "loss": self.total,
                "images_per_second": self._speed(),
                "pieces": report.pieces,
                "memory": report.bytes,
                "host": self.process.memory_info().rss,
                "waited": self.loader.waited,
            }
            self.teller.stepped(epoch, done, self.schedule.per_epoch, facts)
        return report

    def _end_epoch(self, epoch: int, speed: float, report: StepReport) -> None:
        row: dict[str, Any] = {
            "epoch": epoch + 1,
            "loss": self.total,
            "rate": self.schedule.at(self.iteration - 1).rate,
            "images_per_second": speed,
            "pieces": report.pieces,
            "memory": max(self.ranks.everywhere(self._memory)),
        }
        last = epoch == self.form.epochs - 1
        if (last or (epoch + 1) % self.form.every == 0) and (scores := self._validate(last=last)) is not None:
            row |= {
                "map50": scores.map50,
                "map50_95": scores.map50_95,
                "precision": scores.precision,
                "recall": scores.recall,
                "fitness": scores.fitness,
            }
            if scores.fitness >= max((_fitness(one) for one in self.rows), default=0.0):
                self.keeper.save_model("best", self.average.module, self.data.names, {"epoch": epoch + 1})
                self.keeper.save_scores(scores)
        row = self.ranks.once(lambda: row)
        self.rows.append(row)
        self.keeper.save_model("last", self.average.module, self.data.names, {"epoch": epoch + 1})
        if self.is_whole:
            self.save()
        else:
            self.saved = -math.inf  # after the next update
        self.keeper.save_rows(self.rows, self._reckoned())
        self.teller.ended_epoch(row)

    def _validate(self, *, last: bool) -> Scores | None:
        # Images of other shapes would be laid between what training left, and the other way round after it.
        with _room_of_its_own(self.device):
            own = results_by_image(self.average.module, self.held, self.checks, self.guard.evaluate)
        parts = self.ranks.collect(own)
        if parts is None:
            return None
        found = {at: result for part in parts for at, result in part.items()}
        results = [found[at] for at in sorted(found)]
        if last:
            self.keeper.save_picture("val_predictions", found_sheet(self.held.index, results, self.data.names))
        if last or not has_metrics():
            write_results(self.keeper.folder / "predictions.npz", results, self.data.names)
        return score(results, self.data.names) if has_metrics() else None

    def _memory(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return peak_resident()


@contextlib.contextmanager
def _room_of_its_own(device: torch.device) -> Iterator[None]:
    """Return what torch's allocator keeps of a GPU before and after something that is laid out otherwise."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    yield
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _fitness(row: dict[str, Any]) -> float:
    return float(row.get("fitness") or 0.0)
