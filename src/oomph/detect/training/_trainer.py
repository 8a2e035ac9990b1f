"""The training loop."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer

from ...data import Batch, prefetch_to_device
from ...errors import OomphError, RankLost
from ...machine import peak_rss_bytes, rss_bytes
from ...monitor import Recorder, Sampler, record_error
from ...recovery import Guard, StepReport, record_plan
from ...units import count_of
from ..inference import results_by_image
from ..metrics import ImageResult, has_metrics, score
from ..plots import image_png, training_grid
from ._parts import RunContext, TrainingParts, build_guard
from ._progress import StepStats, TrainResult
from ._resume_check import ResumeCheck
from ._schedule import set_lr, should_stop

_GPU_REPORT_INTERVAL = 10  # iterations; reading the loss waits for the GPU


@dataclass
class EpochState:
    """Progress of the epoch under way.

    Attributes:
        started: start time.
        images: images of this rank so far.
        images_per_second: speed over all ranks; None until all iterations are done.
        micro_batches: micro-batches of the last step; None until all iterations are done.
    """

    started: float = field(default_factory=time.perf_counter)
    images: int = 0
    images_per_second: float | None = None
    micro_batches: int | None = None

    def throughput(self) -> dict[str, Any]:
        """Return the columns of results.csv about speed."""
        return {"images_per_second": self.images_per_second, "micro_batches": self.micro_batches}


class Trainer:
    """Trains the epochs of a run, validates them and writes checkpoints."""

    def __init__(self, context: RunContext, parts: TrainingParts) -> None:
        self._context, self._parts = context, parts
        self._config, self._dist = context.config, context.dist
        self._run_dir, self._progress = context.run_dir, context.progress
        self._schedule, self._loss = parts.schedule, parts.loss
        self._last_batch = parts.train_loader.last  # images of an epoch's last batch on this rank
        self._recorder = Recorder(context.run_dir.record_file)
        self._guard: Guard = build_guard(context, parts, self._recorder, lambda _: self.save())
        self._iteration = 0
        self._retries = 0
        self._rows: list[dict[str, Any]] = []
        self._epoch = EpochState()
        self._saved_at = time.monotonic()
        self._started_at, self._started_iteration = time.monotonic(), 0

    def resume(self) -> None:
        """Restore the last checkpoint.

        Raises:
            UsageError: data or world size have changed.
            RankLost: another rank failed.
        """
        state = self._run_dir.load_state()
        self._dist.all_gather(lambda: self._restore(state))
        self._progress.log(f"resumed at iteration {self._iteration} of {self._schedule.iterations}")

    def _restore(self, state: Mapping[str, Any]) -> None:
        loader = self._parts.train_loader
        if self._dist.is_main:
            self._resume_check(int(state["loader"]["epoch"])).verify(state["resume_check"])
        _set_fused(state["guard"], self._parts.optimizer)
        self._guard.load_state_dict(state["guard"])
        self._rows = list(state["rows"])
        self._iteration = int(state["iteration"])
        self._epoch = EpochState(**state["throughput"])
        self._loss.start_epoch(state["losses"])
        self._parts.ema.updates = int(state["ema_updates"])
        # The saved position is rank 0's; other ranks go to their own part of the same iteration.
        position = loader.state_dict(divmod(self._iteration, self._schedule.iterations_per_epoch))
        loader.load_state_dict(state["loader"] if self._dist.is_main else position)

    def _resume_check(self, epoch: int) -> ResumeCheck:
        data_order = str(self._parts.train_loader.state_dict((epoch, 0))["order"])
        names, images = self._context.dataset.names, len(self._context.train_split.index)
        return ResumeCheck(names, images, self._dist.world_size, data_order)

    @property
    def can_save(self) -> bool:
        """True if rank 0 has the state of all ranks; between updates each rank has its own gradients."""
        return not self._dist.is_distributed or self._guard.accumulation.pending is None

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            OomphError: other ranks have gradients that it would not contain.
        """
        if not self.can_save:
            raise OomphError(
                "a checkpoint now would lack the gradients of the other ranks", "resume from the previous checkpoint"
            )
        self._saved_at = time.monotonic()
        steps = self._guard.steps  # includes a step that the guard has not returned from yet
        position = divmod(steps, self._schedule.iterations_per_epoch)
        self._run_dir.save_state(
            {
                "guard": self._guard.state_dict(),
                "loader": self._parts.train_loader.state_dict(position),
                "resume_check": self._resume_check(position[0]).state(),
                "rows": self._rows,
                "iteration": steps,
                "losses": self._loss.totals(include_step=steps > self._iteration),
                "throughput": self._epoch.throughput(),
                "ema_updates": self._parts.ema.updates,
            }
        )

    def run(self) -> TrainResult:
        """Train the remaining epochs."""
        with contextlib.ExitStack() as stack:
            stack.push(self._draw_plots)
            stack.callback(self._recorder.close)
            stack.callback(self._guard.close)
            stack.callback(self._parts.train_loader.close)
            stack.callback(self._parts.val_loader.close)
            record_plan(self._recorder, self._context.plan)
            stack.enter_context(Sampler(self._recorder))
            stack.enter_context(self._guard.signals())
            self._run_recorded()
        return TrainResult(
            run_dir=str(self._config.run_dir),
            epochs=len(self._rows),
            best=best_row(self._rows),
            plan=self._context.plan,
            measured=max([self._peak_bytes(), *(row["peak_bytes"] for row in self._rows)]),
            predicted=self._predicted_peak(),
            retries=self._retries,
            saved_epoch=self._run_dir.saved_epoch("best"),
        )

    def _draw_plots(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, RankLost):  # the launcher kills the other ranks soon
            self._run_dir.draw_plots()

    def _run_recorded(self) -> None:
        try:
            self._run_epochs()
        except Exception as error:
            record_error(self._recorder, error)
            raise

    def _run_epochs(self) -> None:
        self._started_at, self._started_iteration = time.monotonic(), self._iteration
        epochs = self._config.epochs
        first = self._iteration // self._schedule.iterations_per_epoch
        if len(self._rows) >= epochs:
            self._progress.log(f"all {count_of(epochs, 'epoch')} are already trained")
        if first > len(self._rows):  # the run was stopped during the validation of that epoch
            self._end_epoch(first - 1)
        batches: Iterator[Batch] | None = None
        for epoch in range(first, epochs):
            if should_stop([row.get("fitness") or 0.0 for row in self._rows], self._config.patience):
                self._progress.log(f"no improvement for {count_of(self._config.patience, 'epoch')}: training stops")
                return
            self._train_epoch(epoch, self._load_batches(epoch) if batches is None else batches)
            if epoch + 1 < epochs:
                batches = self._load_batches(epoch + 1)  # loaded during validation
            self._end_epoch(epoch)

    def _load_batches(self, epoch: int) -> Iterator[Batch]:
        self._parts.train_loader.set_epoch(epoch)
        return prefetch_to_device(self._parts.train_loader, self._context.device)

    def _train_epoch(self, epoch: int, batches: Iterator[Batch]) -> None:
        self._epoch = EpochState()
        micro_batches: int | None = None
        for batch in batches:
            report = self._train_step(batch, epoch)
            if time.monotonic() - self._saved_at > self._config.checkpoint_minutes * 60 and self.can_save:
                self.save()
            self._retries += report.retries
            micro_batches = report.micro_batches
        self._epoch.images_per_second, self._epoch.micro_batches = self._images_per_second(), micro_batches

    def _train_step(self, batch: Batch, epoch: int) -> StepReport:
        data = batch.images, batch.targets
        if self._iteration == 0 and self._dist.is_main:
            names = self._context.dataset.names
            self._run_dir.save_plot("train_batch0.png", lambda: image_png(training_grid(*data, names)))
        step = self._schedule.at(self._iteration)
        set_lr(self._parts.optimizer, step)
        self._loss.start_step(data, step.update_images(self._context.batch, self._last_batch))
        report = self._guard.step(data, update=step.updates)
        self._loss.commit_step()
        self._iteration += 1
        self._epoch.images += len(batch.images)
        done = self._iteration - epoch * self._schedule.iterations_per_epoch
        is_last = done == self._schedule.iterations_per_epoch
        if self._context.device.type != "cuda" or self._iteration % _GPU_REPORT_INTERVAL == 0 or is_last:
            self._progress.on_step(self._step_stats(epoch, done, report))
        return report

    def _step_stats(self, epoch: int, done: int, report: StepReport) -> StepStats:
        elapsed = time.monotonic() - self._started_at
        left = self._schedule.iterations - self._iteration
        return StepStats(
            epoch=epoch + 1,
            epochs=self._config.epochs,
            iteration=done,
            iterations=self._schedule.iterations_per_epoch,
            loss=self._mean_losses(done)["loss"],
            images_per_second=self._images_per_second(),
            micro_batches=report.micro_batches,
            peak_bytes=report.peak_bytes,
            rss_bytes=rss_bytes(),
            seconds_left=elapsed / (self._iteration - self._started_iteration) * left,  # includes validation
        )

    def _images_per_second(self) -> float:
        images = self._epoch.images * self._dist.world_size
        return images / max(time.perf_counter() - self._epoch.started, 1e-9)

    def _mean_losses(self, iterations: int) -> dict[str, float]:
        """Return the mean loss and its parts over the epoch's iterations so far, as seen by this rank."""
        means = [total * self._dist.world_size / iterations for total in self._loss.totals()]
        return {"loss": sum(means), **dict(zip(self._loss.parts, means, strict=True))}

    def _end_epoch(self, epoch: int) -> None:
        """Validate an epoch, and save its results and a checkpoint."""
        row: dict[str, Any] = {
            "epoch": epoch + 1,
            **self._mean_losses(self._schedule.iterations_per_epoch),
            "lr": self._schedule.at(self._iteration - 1).lr,
            **self._epoch.throughput(),
            "peak_bytes": max(self._dist.all_gather(self._peak_bytes)),
        }
        is_last = epoch == self._config.epochs - 1
        if is_last or (epoch + 1) % self._config.val_interval == 0:
            row |= self._validate_epoch(epoch, is_last=is_last)
        row = self._dist.broadcast(lambda: row)
        self._rows.append(row)
        self._loss.start_epoch()
        self._run_dir.save_model("last", self._parts.ema.module, self._context.dataset.names, {"epoch": epoch + 1})
        if self.can_save:
            self.save()
        else:
            self._saved_at = -math.inf  # save after the next update
        plan = self._context.plan
        self._run_dir.save_results(self._rows, self._predicted_peak(), plan.budget + plan.reserved)
        self._progress.on_epoch_end(row)

    def _validate_epoch(self, epoch: int, *, is_last: bool) -> dict[str, Any]:
        """Validate the EMA, save it if it is the best so far (the first of equals), and return its scores."""
        results = self._predict()
        if results is None:
            return {}
        names, index = self._context.dataset.names, self._context.val_split.index
        if not has_metrics():  # the best epoch is unknown
            self._run_dir.save_predictions(results, index, names, grid=is_last)
            return {}
        scores = score(list(results.values()), names)
        best = best_row(self._rows)
        if best is None or scores.fitness > best["fitness"]:
            self._run_dir.save_model("best", self._parts.ema.module, names, {"epoch": epoch + 1})
            self._run_dir.save_scores(list(results.values()), scores, names)
            self._run_dir.save_predictions(results, index, names)
        columns = ("map50", "map50_95", "precision", "recall", "fitness")
        by_size = {f"map_{size}": value for size, value in scores.by_size.items()}
        return {name: getattr(scores, name) for name in columns} | by_size

    def _predict(self) -> dict[int, ImageResult] | None:
        """Return the EMA's predictions by image number on rank 0, None on other ranks."""
        # Validation images have other shapes: mixing them with training would fragment the GPU's memory.
        with _separate_gpu_cache(self._context.device):
            own_results = results_by_image(
                self._parts.ema.module, self._context.val_split, self._parts.val_loader, self._guard.evaluate
            )
        gathered = self._dist.gather(own_results)
        if gathered is None:
            return None
        results = {image: result for part in gathered for image, result in part.items()}
        return {image: results[image] for image in sorted(results)}

    def _peak_bytes(self) -> int:
        device = self._context.device
        return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_rss_bytes()

    def _predicted_peak(self) -> int:
        """Return the prediction of what `_peak_bytes` measures."""
        need = self._context.plan.planned_need
        return int((need.allocated if self._context.device.type == "cuda" else need.host).value)


def _set_fused(guard_state: Mapping[str, Any], optimizer: Optimizer) -> None:
    """Change the saved optimizer state to the current implementation: the run may have started on another device."""
    for saved in guard_state["optimizers"]:
        for saved_group, group in zip(saved["param_groups"], optimizer.param_groups, strict=True):
            saved_group["fused"] = group["fused"]


@contextlib.contextmanager
def _separate_gpu_cache(device: torch.device) -> Iterator[None]:
    """Empty torch's cache of GPU memory before and after."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    yield
    if device.type == "cuda":
        torch.cuda.empty_cache()


def best_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the row with the best fitness, the first of equals; None if nothing was scored."""
    scored = [row for row in rows if row.get("fitness") is not None]
    return max(scored, key=lambda row: float(row["fitness"]), default=None)
