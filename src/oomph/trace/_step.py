"""The training step that oomph predicts and measures.

A fresh process builds the model, moves and converts it on the device, and builds the optimizer. Then several steps run.
For each micro-batch, the inputs are created on the device, forward and loss run inside autocast (if any), the loss is
divided by the number of micro-batches, backward runs, and inputs and loss are released. The step ends with the
optimizer's update and `zero_grad(set_to_none=True)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..errors import OomphError, UsageError, describe
from ..job import Job
from ..losses import OutputParts, outputs_with_grads
from ..patches import (
    AUTOCAST_DTYPES,
    apply_checkpointing,
    apply_loss_chunks,
    apply_offload,
    autocast,
    convert_batch,
    convert_model,
    set_variant,
)
from ..settings import Settings
from ._allocation_recorder import AllocationRecorder
from ._cuda_autocast import CudaAutocast
from ._device import CpuDevice, CudaDevice
from ._failures import explain, limit
from ._fake_job import (
    build_batch,
    build_model,
    build_optimizers,
    copy_job,
    direct_tensors,
    modules_in_order,
    replace_params,
)
from ._memory_savers import TracedHostMemory, step_eight_bit
from ._module_calls import report_modules
from ._ranks import REPLICATED, SHARDED, add_buckets, fake_ranks, record_shards, shard_model
from ._trace import COMPILED, Guess, Phase, StorageKind, Trace
from .fake import DataAssumptions, EndlessLoop, FakeWorld, eager_code, preserve_global_state, untraced_transformers
from .kernels import CudaKernels, flatten_weights

STEPS = 3
RANDOM_BRANCH = "a random draw decides, and the branch that needs more memory counts"


def trace_step(
    job: Job, settings: Settings, device: CudaDevice | CpuDevice, steps: int = STEPS, *, stacks: bool = False
) -> Trace:
    """Trace several training steps of a Job on a device, then validation and a moving average of the weights.

    The Job's objects and the global state are as before afterwards. With `stacks`, each allocation has the lines of the
    user's code that made it.

    Raises:
        UsageError: the Job's functions fail or can't be traced, or its loss is not a scalar.
    """
    with preserve_global_state(), fake_ranks(settings) as mesh:
        run = _Run(job, settings, device, DataAssumptions(job.mask_fraction), stacks, mesh)
        try:
            result = run.trace(steps)
        except EndlessLoop:
            raise
        except UsageError as first_error:
            # Code that validates its data (`if bad.any(): raise`) passes only if booleans are False.
            run = replace(run, assumed=replace(run.assumed, boolean=False))
            try:
                result = run.trace(steps)
            except UsageError:
                raise first_error from first_error.__cause__
        return _largest_branches(run, result, steps)


@dataclass(frozen=True)
class _Result:
    """A trace and what it could not know.

    Attributes:
        trace: the trace.
        random_lines: lines of the user's code where a random draw decided.
        booleans: guesses of booleans.
        numbers: guesses of other numbers.
        masks: booleans read from masks of the example batch.
    """

    trace: Trace
    random_lines: frozenset[str]
    booleans: frozenset[Guess]
    numbers: frozenset[Guess]
    masks: frozenset[Guess]


@dataclass(frozen=True)
class _Run:
    """A trace to make."""

    job: Job
    settings: Settings
    device: CudaDevice | CpuDevice
    assumed: DataAssumptions
    stacks: bool = False
    mesh: Any = None  # of the ranks, if there are several

    def trace(self, steps: int) -> _Result:
        """Trace some steps and what happens between them, one step alone, or (0 steps) only the first forward pass.

        Raises:
            UsageError: the Job fails or can't be traced.
        """
        try:
            return self._trace(steps)
        except OomphError:
            raise
        except Exception as error:  # errors of the user's functions are explained where they are called
            raise limit(f"this Job: {describe(error, 200)}") from error

    def _trace(self, steps: int) -> _Result:
        world = FakeWorld(self.assumed)
        recorder = AllocationRecorder(self.device, world.values, stacks=self.stacks)
        with ExitStack() as stack:
            stack.enter_context(eager_code(recorder.assumptions.append))
            job = copy_job(self.job, world)
            model = build_model(job, world)
            stack.enter_context(untraced_transformers())
            if world.copier.compiled:
                recorder.assumptions.append(COMPILED)
            is_cuda, precision = isinstance(self.device, CudaDevice), self.settings.precision
            if isinstance(self.device, CudaDevice):
                stack.enter_context(CudaKernels(self.device, recorder.assumptions))
            if is_cuda and precision in AUTOCAST_DTYPES:
                stack.enter_context(CudaAutocast(AUTOCAST_DTYPES[precision]))
            stack.enter_context(apply_loss_chunks(self.settings.loss_chunks))
            stack.enter_context(world.mode)
            tracer = _StepTracer(job, self.settings, recorder, world)
            stack.enter_context(recorder)
            stack.enter_context(world.functions(on_gpu=is_cuda))
            if self.settings.parallel == "fsdp2":
                stack.enter_context(record_shards(recorder))
            tracer.build(model, self.mesh)
            with report_modules(model, recorder):
                for step in range(steps):
                    tracer.step(step)
                if not steps:
                    tracer.forward()
                recorder.end_training()
                if steps > 1:
                    tracer.between_steps(steps)
        types = world.values.assumed_types
        return _Result(
            recorder.trace(),
            frozenset(world.values.random_lines),
            frozenset(guess for guess, kind in types.items() if kind is bool),
            frozenset(guess for guess, kind in types.items() if kind is not bool),
            frozenset(world.values.masks),
        )

    def forward_peak(self) -> int | None:
        """Return the most bytes that are live in the first forward pass; None if it fails under these assumptions."""
        try:
            return _forward_peak(self.trace(0).trace)
        except EndlessLoop:
            return 0
        except UsageError:
            return None


def _largest_branches(run: _Run, result: _Result, steps: int) -> Trace:
    """Return the trace with the branches that need the most memory, where a random draw or a value of data decides.

    The first trace has draws from the middle of their range. Others have draws from its ends, so that a branch with
    `draw < p` is taken in one and skipped in the other, the opposite of each assumed boolean, and other numbers. What
    is read from a mask of the example batch stays, but is a guess if other masks need more.
    """
    assumed = run.assumed
    draws = [replace(assumed, draw=draw) for draw in (1, 2)] if result.random_lines else []
    # The opposite of False has failed already.
    flipped = [replace(assumed, other_booleans=True)] if result.booleans and assumed.boolean else []
    numbers = [replace(assumed, other_numbers=True)] if result.numbers else []
    masks = [replace(assumed, other_masks=True)] if result.masks else []
    usual = _forward_peak(result.trace)
    peaks = {other: replace(run, assumed=other).forward_peak() for other in (*draws, *flipped, *numbers, *masks)}
    largest = max((*draws, *flipped), key=lambda other: peaks[other] or 0, default=assumed)
    if (peaks.get(largest) or 0) > usual:
        result = replace(run, assumed=largest).trace(steps)
    irrelevant: set[Guess] = set()
    if all(peaks[other] in {None, usual} for other in flipped):
        irrelevant |= result.booleans  # a boolean whose opposite fails is a check of the data
    if all(peaks[other] == usual for other in numbers):
        irrelevant |= result.numbers
    branches = result.masks if any((peaks[other] or 0) > usual for other in masks) else frozenset()
    result = replace(result, trace=_with_branches(result.trace, branches, irrelevant))
    return _with_random_lines(result, has_random=any(peaks[other] != usual for other in draws))


def _with_branches(trace: Trace, branches: frozenset[Guess], irrelevant: set[Guess]) -> Trace:
    """Return the trace with only those guesses marked as branches that decide about memory."""
    guesses = (
        replace(guess, is_branch=guess in branches or (guess.is_branch and guess not in irrelevant))
        for guess in trace.guesses
    )
    return replace(trace, guesses=tuple(guesses))


def _with_random_lines(result: _Result, *, has_random: bool) -> Trace:
    """Return the trace with the lines where a random draw decides about memory."""
    trace = result.trace
    lines = sorted(result.random_lines) if has_random else ()
    random = tuple(Guess(line, RANDOM_BRANCH, is_branch=True) for line in lines)
    assumptions = trace.assumptions + tuple(str(guess) for guess in random)
    return replace(trace, guesses=trace.guesses + random, assumptions=assumptions)


def _forward_peak(trace: Trace) -> int:
    """Return the most bytes that are live in the first forward pass, where branches show first."""
    end = next((start for start, _, phase in trace.phase_starts if phase is Phase.BACKWARD), trace.training_events)
    live = peak = 0
    for event in trace.events[:end]:
        live += trace.storages[abs(event) - 1].size * (1 if event > 0 else -1)
        peak = max(peak, live)
    return peak


class _StepTracer:
    """Runs the phases of training under a recorder."""

    def __init__(self, job: Job, settings: Settings, recorder: AllocationRecorder, world: FakeWorld) -> None:
        self.job, self.settings, self.recorder, self.world = job, settings, recorder, world
        self.on_gpu = isinstance(recorder.device, CudaDevice)

    def build(self, model: nn.Module, mesh: Any) -> None:
        """Move the model to the device, convert it there and build the optimizers."""
        self.model = model
        self.recorder.name_modules(model.named_modules())
        apply_checkpointing(model, self.settings.checkpointing)
        apply_offload(model, self.settings.offload, TracedHostMemory(self.recorder))
        before = _parameters(model)
        is_sharded = self.settings.parallel == "fsdp2"
        if is_sharded:
            self.recorder.assumptions.append(SHARDED)
            convert_model(model, self.settings)
            shard_model(model, mesh)
        with self.recorder.phase(Phase.BUILD, 0):
            for prefix, module in modules_in_order(model):
                self._move(prefix, module)
            convert_model(model, self.settings)
            for prefix, module in modules_in_order(model):
                self._label_tensors(prefix, module)
            if self.settings.parallel == "ddp":
                self.recorder.assumptions.append(REPLICATED)
                self.buckets = add_buckets(model, self.recorder)
            for module in self.world.copier.modules:  # other models that the Job's functions refer to
                self._move("", module, others=True)
        self.optimizers = build_optimizers(self.job, model, self.world, on_gpu=self.on_gpu)
        after = _parameters(model)
        replace_params(self.optimizers, {id(param): after[name] for name, param in before.items()})
        with self.recorder.phase(Phase.BUILD, 0):
            self._adopt_optimizers()
        for optimizer in self.optimizers:
            set_variant(optimizer, self.settings.optimizer)
        self.world.on_stray = self._adopt_stray
        has_scaler = self.settings.precision == "amp-fp16"
        self.scale = torch.full((), 65536.0) if has_scaler else None

    def _move(self, prefix: str, module: nn.Module, *, others: bool = False) -> None:
        for name, tensor, is_parameter in direct_tensors(module):
            self.recorder.adopt(tensor, StorageKind.PARAMETER if is_parameter else StorageKind.BUFFER, prefix + name)
        if isinstance(module, nn.RNNBase) and self.on_gpu and not others:
            with self.world.mode:
                flatten_weights(module)
            self._label_tensors(prefix, module)

    def _adopt_optimizers(self) -> None:
        """Count the state of a live optimizer, and parameters of others than the model."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for param in group["params"]:
                    self.recorder.adopt(param, StorageKind.PARAMETER)
            for tensor in _state_tensors(optimizer):
                self.recorder.adopt(tensor, StorageKind.STATE)

    def _adopt_stray(self, tensor: Tensor) -> None:
        if self.recorder.is_recording:
            self.recorder.adopt(tensor, StorageKind.BUFFER)

    def _label_tensors(self, prefix: str, module: nn.Module) -> None:
        for name, tensor, is_parameter in direct_tensors(module):
            self.recorder.label(tensor, StorageKind.PARAMETER if is_parameter else StorageKind.BUFFER, prefix + name)

    def step(self, step: int) -> None:
        """Run one optimizer step over all micro-batches."""
        self.recorder.start_step()
        sizes = self.settings.micro_batch_sizes
        if self.settings.passes > 1 and len(sizes) > 1:
            self._two_passes(step, sizes)
        else:
            for size in sizes:
                self._micro_batch(step, size, len(sizes))
        with self.recorder.phase(Phase.OPTIMIZER, step):
            self._unscale()
            for optimizer in self.optimizers:
                self._update(optimizer)
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        try:
            if self.settings.optimizer == "8bit":
                step_eight_bit(optimizer, self.recorder)
            else:
                optimizer.step()
        except OomphError:
            raise
        except Exception as error:
            if "closure" in str(error):
                raise limit(f"{type(optimizer).__name__}, whose step needs a closure") from error
            raise explain(
                error, f"the Job's optimizer raised {describe(error, 300)}", "fix the function optimizer"
            ) from error
        for tensor in _state_tensors(optimizer):
            self.recorder.label(tensor, StorageKind.STATE)

    def forward(self) -> None:
        """Run only the first forward pass."""
        with self.recorder.phase(Phase.FORWARD, 0):
            self._loss(self._batch(self.settings.micro_batch_sizes[0]))

    def between_steps(self, step: int) -> None:
        """Run validation, a moving average of the weights and saving a checkpoint."""
        self.model.eval()
        try:
            with self.recorder.phase(Phase.VALIDATION, step), torch.no_grad():
                self._loss(self._batch(self.settings.micro_batch_sizes[0]))
        except UsageError:
            # In eval mode, some models return predictions, which the loss function rejects.
            self.recorder.assumptions.append("validation was not traced: the loss needs the model in training mode")
        self.model.train()
        with self.recorder.phase(Phase.AVERAGE, step):
            average = [
                torch.empty_like(tensor)
                for _, module in modules_in_order(self.model)
                for _, tensor, _ in direct_tensors(module)
            ]
            for tensor in average:
                self.recorder.label(tensor, StorageKind.STATE)
            del average
        with self.recorder.phase(Phase.CHECKPOINT, step):
            pass  # torch.save copies the tensors to the host one by one and allocates nothing on the device

    def _micro_batch(self, step: int, size: int, micro_batches: int) -> None:
        with self.recorder.phase(Phase.FORWARD, step):
            batch = self._batch(size)
            loss = self._loss(batch)  # kept until the end, because training loops report it
            weighted = loss / micro_batches
        with self.recorder.phase(Phase.BACKWARD, step):
            if self.scale is not None:
                weighted = weighted * self.scale
            self._backward([weighted], [None])
            self._label_grads()
            del batch, loss, weighted

    def _two_passes(self, step: int, sizes: Sequence[int]) -> None:
        """Run each micro-batch twice, with the loss of the whole batch in between, as the guard does."""
        parts = OutputParts()
        with self.recorder.phase(Phase.FORWARD, step):
            batches = [self._batch(size, part=0) for size in sizes]
            with torch.no_grad():
                for inputs, size in zip(batches, sizes, strict=True):
                    parts.add(self._outputs(inputs), size)
            targets = self._batch(sum(sizes), part=1)
            with autocast(self.settings.precision, "cpu"):
                loss = _check_scalar(self.job.loss_of(parts.joined(), targets))
        with self.recorder.phase(Phase.BACKWARD, step):
            weighted = loss if self.scale is None else loss * self.scale
            self._backward([weighted], [None])
            del weighted, targets
        for inputs, grads in zip(batches, parts.take_grads(), strict=True):
            with self.recorder.phase(Phase.FORWARD, step):
                tensors, output_grads = outputs_with_grads(self._outputs(inputs), grads)
            with self.recorder.phase(Phase.BACKWARD, step):
                self._backward(tensors, output_grads)
                self._label_grads()
                del tensors, output_grads, grads

    def _outputs(self, inputs: Any) -> Any:
        with autocast(self.settings.precision, "cpu"):
            return self.job.outputs(self.model, inputs)

    def _label_grads(self) -> None:
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                self.recorder.label(parameter.grad, StorageKind.GRADIENT, name)

    def _backward(self, tensors: Sequence[Tensor], grads: Sequence[Tensor | None]) -> None:
        try:
            torch.autograd.backward(tensors, grads)
        except OomphError:
            raise
        except Exception as error:
            raise explain(
                error, f"the Job's loss can't be differentiated: {describe(error, 300)}", "check the loss"
            ) from error

    def _batch(self, size: int, part: int | None = None) -> Any:
        """Create a batch on the device, or only its inputs (0) or targets (1)."""
        with self.recorder.paused():
            batch = build_batch(self.job, size, self.settings.size, self.world)
            batch = batch if part is None else batch[part]
        for leaf in tree_leaves(batch):
            if isinstance(leaf, Tensor):
                self.recorder.adopt(leaf, StorageKind.INPUT)
        converted = convert_batch(batch, self.settings)
        for leaf in tree_leaves(converted):
            if isinstance(leaf, Tensor):
                self.recorder.label(leaf, StorageKind.INPUT)
        return converted

    def _loss(self, batch: Any) -> Tensor:
        try:
            with autocast(self.settings.precision, "cpu"):
                loss = self.job.run(self.model, batch)
        except OomphError:
            raise
        except (Exception, SystemExit) as error:
            raise explain(
                error,
                f"the Job can't run with {self.settings.batch} samples of size {self.settings.size}: "
                f"{describe(error, 300)}",
                "check the Job's batch, its loss and the size",
            ) from error
        return _check_scalar(loss)

    def _unscale(self) -> None:
        """Allocate the two numbers that the gradient scaler keeps.

        Unscaling itself runs in place on the device; traced on fake tensors it would allocate new gradients.
        """
        if self.scale is not None:
            torch.zeros(1), torch.ones(1)


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return dict(model.named_parameters(remove_duplicate=False))


def _state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    leaves = (leaf for state in optimizer.state.values() for leaf in tree_leaves(dict(state)))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _check_scalar(loss: object) -> Tensor:
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss
    got = (
        f"a tensor of shape {tuple(loss.shape)}"
        if isinstance(loss, Tensor)
        else f"a value of type {type(loss).__name__}"
    )
    raise UsageError(f"the Job's loss is {got}, not a scalar", "return a single number, such as a mean")
