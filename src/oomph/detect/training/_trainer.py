"""A training run under way, to its last checkpoint."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import torch
from torch.nn.parallel import DistributedDataParallel

from ... import patches
from ...data import Batch, Cache, Loader, LoaderOptions, Shard, prefetch_to_device, read_resources, usable_cores
from ...errors import OomphError
from ...machine import peak_rss_bytes
from ...monitor import Recorder, Sampler
from ...planner import Plan
from ...recovery import Guard, StepReport, guard
from ...units import count_of
from ..checkpoint._weights import load_weights, read_weights
from ..dataset._data_yaml import DataSet
from ..dataset._indexed_split import Material, Samples, gather
from ..dataset._tiles import cut, window_loader
from ..inference._validation import decoding_budget, results_by_image, validation_loader
from ..metrics._scores import ImageResult, has_metrics, score
from ..model._anchors import AnchorCheck
from ..model._batch import shrink_batch
from ..model._loss import DetectionLoss, split_batch
from ..model._network import Yolov5, yolov5
from ..plots._grids import training_sheet
from ._config import OrderForm
from ._dist import ALONE, Ranks
from ._ema import Ema
from ._hyperparameters import build_optimizer, freeze
from ._planning import side_of
from ._progress import Outcome, Teller
from ._resume_check import Circumstances
from ._run_dir import Keeper
from ._schedule import Moment, Schedule, set_rates, should_stop
from ._train_loss import PARTS, GroupLoss

_PATIENCE = 60.0  # seconds: scoring many images may keep a rank from giving a sign of life for a while

_MOST_WORKERS = 16
_AHEAD = 4  # batches that processes make while an epoch is validated
_SPARE = 0.25  # of the memory that is left, for copies of images
_SELDOM = 10  # iterations between two looks at the loss on a GPU
_UNKNOWN: dict[str, Any] = {"images_per_second": None, "micro_batches": None}
_CHECKING = 4  # threads that load images to validate with


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
        self.pace = dict(_UNKNOWN)  # of this epoch, when all its iterations are done
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
        loss = DetectionLoss(model, recipe.gains, side, recipe.anchor_ratio, recipe.label_smoothing)
        self.loss = GroupLoss(loss, self.device)
        fused = self.plan.settings.optimizer == "fused" or None
        self.optimizer = build_optimizer(model, form.recipe, form.batch, fused=fused)
        self.average = Ema(model)
        if self.plan.settings.checkpointing == "blocks":  # after the average, which is a copy without it
            patches.checkpoint(model, patches.blocks(model))
        self.recorder = Recorder(keeper.record_file)
        precision = self.plan.settings.precision
        self.guard: Guard = guard(
            model=DistributedDataParallel(model) if ranks.are_several else model,
            optimizer=self.optimizer,
            loss=self.loss,
            split=split_batch,
            micro_batch=self.plan.settings.micro_batch,
            clip_grad_norm=form.recipe.clip,
            ema=self.average,
            precision=precision if precision.startswith("amp") else None,
            budget=form.budget,
            allow=form.allow,
            resize=shrink_batch if "size" in form.allow else None,
            checkpoint=lambda _: self.save(),
            recorder=self.recorder,
            rank_timeout=_PATIENCE,
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
            builder=Samples(self.training.labels, augmentation),
            collate=gather,
            shuffle=True,
            seed=form.seed,
            shard=Shard(ranks.rank, ranks.ranks),
            budget=decoding_budget(ranks),
            options=self._hands(),
        )

    def _hands(self) -> LoaderOptions:
        """Who loads images: threads, or beside a GPU processes, as Python's lock would hold up the training too."""
        if self.device.type == "cuda":
            workers, exactly = self._loading(), self.form.threads or None
            return LoaderOptions(threads=exactly, workers=workers, prefetch=_AHEAD, cache=self._copies())
        return LoaderOptions(threads=self._loading())

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
        return Cache(None, size) if size < read_resources().memory * _SPARE else None

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
        # How weights are updated is for the plan of now to say, and not for that of the device that it was begun on.
        for optimizer in state["guard"]["optimizers"]:
            for saved, own in zip(optimizer["param_groups"], self.optimizer.param_groups, strict=True):
                saved["fused"] = own["fused"]
        self.guard.load_state_dict(state["guard"])
        self.rows = list(state["rows"])
        self.iteration, self.pace = int(state["iteration"]), dict(state["pace"])
        self.loss.begin(state["losses"])
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
                "losses": self.loss.sums(with_step=self.guard.steps > self.iteration),
                "pace": self.pace,
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
            self._epochs()
        return Outcome(
            folder=str(self.form.folder),
            epochs=len(self.rows),
            best=best_row(self.rows),
            kept=self.keeper.epoch_of("best"),
            plan=self.plan,
            measured=max([self._memory(), *(row["memory"] for row in self.rows)]),
            predicted=self._reckoned(),
            retries=self.retries,
        )

    def _epochs(self) -> None:
        """All that are left, unless nothing gets better any more."""
        self.started, self.first = time.monotonic(), self.iteration
        begin = self.iteration // self.schedule.per_epoch
        if len(self.rows) >= self.form.epochs:
            self.teller.said(f"nothing is left to train of {count_of(self.form.epochs, 'epoch')}")
        if begin > len(self.rows):  # it was stopped while that epoch was validated
            self._end_epoch(begin - 1)
        for epoch in range(begin, self.form.epochs):
            if should_stop([row.get("fitness") or 0.0 for row in self.rows], self.form.patience):
                self.teller.said(f"no improvement for {count_of(self.form.patience, 'epoch')}: the run ends")
                return
            if epoch == begin:
                self.ahead = self._batches(begin)
            self._epoch(epoch)

    def _reckoned(self) -> int:
        """The predicted figure that is measured: what torch allocates, or the whole process on the CPU."""
        return self._predicted()["allocated" if self.device.type == "cuda" else "host"]

    def _predicted(self) -> dict[str, int]:
        after = self.plan.planned_need
        figures = {"allocated": after.allocated, "reserved": after.reserved, "host": after.host}
        return {name: int(figure.value) for name, figure in figures.items()}

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch, which are made from now on."""
        self.loader.set_epoch(epoch)
        return prefetch_to_device(self.loader, self.device)

    def _epoch(self, epoch: int) -> None:
        self.began, self.images, self.pace = time.perf_counter(), 0, dict(_UNKNOWN)
        for batch in self.ahead:
            report = self._step(batch, epoch)
            if time.monotonic() - self.saved > self.form.minutes * 60 and self.is_whole:
                self.save()
            self.retries += report.retries
        self.pace = {"images_per_second": self._speed(), "micro_batches": report.micro_batches}
        if epoch + 1 < self.form.epochs:
            self.ahead = self._batches(epoch + 1)  # made while this one is validated
        self._end_epoch(epoch)

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
        self.loss.count()
        self.iteration += 1
        self.images += len(batch.images)
        done = self.iteration - epoch * self.schedule.per_epoch
        # Reading the loss waits for the GPU.
        if self.device.type != "cuda" or self.iteration % _SELDOM == 0 or done == self.schedule.per_epoch:
            facts = {
                **self._losses(done),
                "images_per_second": self._speed(),
                "micro_batches": report.micro_batches,
                "memory": report.peak_bytes,
                "host": self.process.memory_info().rss,
                "waited": self.loader.waited,
                "epochs": self.form.epochs,
                "seconds_left": self._seconds_left(),
            }
            self.teller.stepped(epoch, done, self.schedule.per_epoch, facts)
        return report

    def _seconds_left(self) -> float:
        """Until the end of the run, at the pace that it had since it was begun or resumed, validations and all."""
        passed = time.monotonic() - self.started
        return passed / (self.iteration - self.first) * (self.schedule.iterations - self.iteration)

    def _losses(self, iterations: int) -> dict[str, float]:
        """The mean loss of an epoch's iterations so far, and its parts; of ranks, as far as this one knows."""
        means = [one * self.ranks.ranks / iterations for one in self.loss.sums()]
        return {"loss": sum(means), **dict(zip(PARTS, means, strict=True))}

    def _end_epoch(self, epoch: int) -> None:
        """Validate, and keep what came of an epoch whose iterations are done."""
        row: dict[str, Any] = {
            "epoch": epoch + 1,
            **self._losses(self.schedule.per_epoch),
            "rate": self.schedule.at(self.iteration - 1).rate,
            **self.pace,
            "memory": max(self.ranks.everywhere(self._memory)),
        }
        last = epoch == self.form.epochs - 1
        if last or (epoch + 1) % self.form.every == 0:
            row |= self._score(epoch, last=last)
        row = self.ranks.once(lambda: row)
        self.rows.append(row)
        self.loss.begin()
        self.keeper.save_model("last", self.average.module, self.data.names, {"epoch": epoch + 1})
        if self.is_whole:
            self.save()
        else:
            self.saved = -math.inf  # after the next update
        self.keeper.save_rows(self.rows, self._reckoned())
        self.teller.ended_epoch(row)

    def _score(self, epoch: int, *, last: bool) -> dict[str, Any]:
        """Validate and keep what is the best so far, the first one of equals; what belongs into the row."""
        found = self._validate()
        if found is None:
            return {}
        names = self.data.names
        if not has_metrics():  # nobody knows which is the best
            self.keeper.save_found(found, self.held.index, names, picture=last)
            return {}
        scores = score(list(found.values()), names)
        best = best_row(self.rows)
        if best is None or scores.fitness > best["fitness"]:
            self.keeper.save_model("best", self.average.module, names, {"epoch": epoch + 1})
            self.keeper.save_scores(scores)
            self.keeper.save_found(found, self.held.index, names)
        return {
            "map50": scores.map50,
            "map50_95": scores.map50_95,
            "precision": scores.precision,
            "recall": scores.recall,
            "fitness": scores.fitness,
        }

    def _validate(self) -> dict[int, ImageResult] | None:
        """What is found in the images by their numbers, on the first rank; None elsewhere."""
        # Images of other shapes would be laid between what training left, and the other way round after it.
        with _room_of_its_own(self.device):
            own = results_by_image(self.average.module, self.held, self.checks, self.guard.evaluate)
        parts = self.ranks.collect(own)
        if parts is None:
            return None
        found = {at: result for part in parts for at, result in part.items()}
        return {at: found[at] for at in sorted(found)}

    def _memory(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return peak_rss_bytes()


@contextlib.contextmanager
def _room_of_its_own(device: torch.device) -> Iterator[None]:
    """Return what torch's allocator keeps of a GPU before and after something that is laid out otherwise."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    yield
    if device.type == "cuda":
        torch.cuda.empty_cache()


def best_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The row with the best fitness, the first one of equals; None where nothing was scored."""
    scored = [row for row in rows if row.get("fitness") is not None]
    return max(scored, key=lambda row: float(row["fitness"]), default=None)
