"""The guard as a user meets it: errors, refusals, notices, validation, saving, ends."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import RetriesExhausted, UsageError
from oomph.monitor import Recorder, load_record
from oomph.recovery import Guard

from .faults import CUDA, MAKERS, ByteCap, FaultAt, FaultIn
from .nets import Rig, differences, plain_batch, plain_net


def simple(loss: Any = nn.functional.mse_loss, **options: Any) -> Guard:
    net = plain_net()
    return oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=loss, **options)


class OddError(Exception):
    """Somebody's own error."""


def test_a_users_error_passes_through_once_with_its_own_traceback() -> None:
    calls = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        del outputs, targets
        calls.append(1)
        raise OddError("the label is 7")

    rig = Rig()
    rig.guard._work._loss = loss
    before = rig.state()
    with pytest.raises(OddError, match="the label is 7") as caught:
        rig.guard.step(rig.batches(1)[0])
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "loss"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert len(calls) == 1
    assert differences(rig.state(), before) == []


def test_a_wrong_shape_is_no_memory_problem() -> None:
    guard = simple()
    inputs, targets = plain_batch()
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        guard.step((inputs[:, :3], targets))
    assert guard.steps == 0


def test_an_error_that_only_speaks_of_memory_is_the_users() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        del outputs, targets
        raise ValueError("CUDA out of memory, says the user")

    with pytest.raises(ValueError, match="says the user"):
        simple(loss).step(plain_batch())


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOMEM, "Cannot allocate memory", "labels.cache"),
        OSError(errno.EMFILE, "Too many open files"),
        RuntimeError("DataLoader worker (pid 123) is killed by signal: Killed."),
    ],
    ids=["file", "open files", "worker"],
)
def test_what_smaller_pieces_can_not_mend_passes_through_at_once(error: Exception) -> None:
    calls = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        del model, batch
        calls.append(1)
        raise error

    with pytest.raises(type(error)) as caught:
        simple().step(plain_batch(), forward=forward)
    assert caught.value is error
    assert len(calls) == 1


DOUBTFUL = [
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if the input is not contiguous."),
    RuntimeError("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm`"),
    RuntimeError("GET was unable to find an engine to execute this computation"),
    MemoryError("my cache is full"),
]


@pytest.mark.parametrize("error", DOUBTFUL, ids=["cudnn", "cublas", "engine", "own"])
def test_what_may_be_no_memory_problem_ends_the_run_as_itself(error: Exception, tmp_path: Path) -> None:
    def unwilling(model: nn.Module, piece: Any) -> Tensor:
        del model, piece
        raise error

    rig = Rig(checkpoint=tmp_path / "last.pt")
    before = rig.state()
    with pytest.raises(type(error)) as caught:
        rig.guard.step(rig.batches(1)[0], forward=unwilling)
    assert caught.value is error
    assert traceback.extract_tb(error.__traceback__)[-1].name == "unwilling"
    assert error.__context__ is None
    assert differences(rig.state(), before) == []
    assert (tmp_path / "last.pt").exists(), "it may have been memory after all"
    with pytest.raises(type(error)) as caught:
        rig.guard.evaluate(rig.batches(1), unwilling)
    assert caught.value is error


def test_the_end_names_what_was_raised_and_where() -> None:
    def greedy(model: nn.Module, piece: Any) -> Tensor:
        del model, piece
        raise torch.OutOfMemoryError(CUDA)

    for run in (
        lambda: simple().step(plain_batch(), forward=greedy),
        lambda: simple().evaluate([plain_batch()], greedy),
    ):
        with pytest.raises(RetriesExhausted) as caught:
            run()
        cause = caught.value.__cause__
        assert isinstance(cause, torch.OutOfMemoryError)
        assert cause.__traceback__ is None, "it would hold all that was in memory"
        if sys.version_info >= (3, 11):
            assert "in greedy" in cause.__notes__[-1]


def test_an_interrupt_in_the_middle_of_an_update_leaves_no_half_of_it() -> None:
    rig = Rig()
    rig.guard.step(rig.batches(1)[0])
    before = rig.state()
    batches = rig.batches(2)

    class Interrupt(FaultAt):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "addcdiv" in func.__name__:
                raise KeyboardInterrupt
            return func(*args, **(kwargs or {}))

    before = {**before, "model": {name: one.clone() for name, one in before["model"].items()}}
    with pytest.raises(KeyboardInterrupt), Interrupt():
        rig.guard.step(batches[1])
    assert differences(rig.state()["model"], before["model"]) == []
    assert all(one.grad is None for one in rig.net.parameters())


def test_the_ladder_is_climbed_under_a_cap_of_live_bytes() -> None:
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.inside(x)
            return found

    def run(cap: int) -> tuple[oomph.StepReport, ByteCap]:
        torch.manual_seed(0)
        net = nn.Sequential(*[Block() for _ in range(6)])
        guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=nn.functional.mse_loss)
        batch = torch.randn(512, 64), torch.randn(512, 64)
        guard._work.look = None  # the first step looks at the loss besides
        with ByteCap(cap) as mode:
            return guard.step(batch), mode

    whole, mode = run(1 << 40)
    assert whole.pieces == 1
    least = mode.peak
    small, mode = run(int(least * 0.8))
    assert small.pieces > 1
    assert mode.refused > 0
    assert mode.peak <= least * 0.8
    torch.testing.assert_close(small.loss, whole.loss)
    with pytest.raises(RetriesExhausted, match="doesn't fit"):
        run(int(least * 0.1))


def test_single_samples_that_do_not_fit_are_checkpointed_and_then_refused() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    def run(cap: int) -> oomph.StepReport:
        torch.manual_seed(0)
        net = nn.Sequential(*[Wide() for _ in range(12)])
        guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=nn.functional.mse_loss)
        batch = torch.randn(2, 2048, 8), torch.randn(2, 2048, 8)
        with ByteCap(cap):
            return guard.step(batch)

    names = [rung.name for rung in run(1_300_000).rungs]
    assert names[0] == "pieces"
    assert names[1] == "collect"
    assert set(names[2:]) == {"checkpoint"}
    with pytest.raises(RetriesExhausted):
        run(300_000)


class _Sized(nn.Module):
    """Keeps so many numbers for each of its input."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.up, self.tanh, self.down = nn.Linear(1, times), nn.Tanh(), nn.Linear(times, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down(self.tanh(self.up(x)))
        return found


def test_the_largest_blocks_are_checkpointed_first_and_no_more_than_needed() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*[_Sized(times) for times in (8, 4, 12, 4, 16, 8, 4, 8)])
    guard = oomph.guard(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=nn.functional.mse_loss, calm=2
    )
    batch = torch.randn(1, 4096, 1), torch.randn(1, 4096, 1)
    guard._work.look = None

    def chosen() -> list[int]:
        return [block.up.out_features for block in net if isinstance(block, _Sized) and "forward" in vars(block)]

    with ByteCap(1 << 40) as mode:
        guard.step(batch)
    whole = mode.peak
    with ByteCap(int(0.85 * whole)):
        report = guard.step(batch)
    assert [rung.name for rung in report.rungs] == ["collect", "checkpoint", "checkpoint"]
    assert chosen() == [12, 16]
    for _ in range(3):
        guard.step(batch)
    assert len(chosen()) == 1
    for _ in range(6):
        guard.step(batch)
    assert chosen() == []


def test_the_first_retry_goes_to_the_pieces_that_are_predicted_to_fit() -> None:
    asked = []

    def predict(samples: int) -> int:
        asked.append(samples)
        return samples << 40  # a TiB for each sample

    guard = simple(predict=predict, budget=3 << 40, calm=1)
    with FaultAt([5]):
        report = guard.step(plain_batch(16))
    assert (report.pieces, report.retries) == (8, 1)
    assert asked == [8, 4, 2]
    assert [guard.step(plain_batch(16)).pieces for _ in range(3)] == [8] * 3
    assert asked == [8, 4, 2], "each question is asked once"


def test_a_predictor_that_knows_nothing_that_fits_is_not_followed() -> None:
    guard = simple(predict=lambda samples: (samples + 1) << 60, budget=1 << 40)
    with FaultAt([5]):
        assert guard.step(plain_batch()).pieces == 2


def test_out_of_rungs_saves_first_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    guard = simple(checkpoint=path)
    guard.step(plain_batch())
    before = {name: one.clone() for name, one in guard.model.state_dict().items()}
    with pytest.raises(RetriesExhausted, match=r"last\.pt") as caught, FaultIn("addmm"):
        guard.step(plain_batch())
    assert caught.value.checkpoint == str(path)
    assert caught.value.exit_code == 3
    other = simple()
    other.load(path)
    assert other.steps == 1
    assert differences(dict(other.model.state_dict()), before) == []
    assert [one.name for one in tmp_path.iterdir()] == ["last.pt"]


def test_a_shortage_that_passes_does_not_end_a_run_whose_batches_are_single_samples() -> None:
    guard = simple()
    guard.step(plain_batch())
    with FaultAt([5]):
        report = guard.step(plain_batch(1))
    assert [rung.name for rung in report.rungs] == ["collect"]
    assert guard.steps == 2
    with FaultAt([5]):
        assert guard.step(plain_batch(1)).retries == 1, "and so the next time"


def test_precision_and_size_need_a_yes() -> None:
    with pytest.raises(UsageError, match="'speed'"):
        simple(allow=("speed",))
    with pytest.raises(UsageError, match="resize"):
        simple(allow=("size",))
    guard = simple(allow=("precision", "size"), resize=lambda batch: batch)
    with pytest.raises(RetriesExhausted), FaultIn("addmm"):
        guard.step(plain_batch(2))
    assert guard._work._setting == type(guard._work._setting)("amp-bf16", guard.options.resize, 3)


def test_larger_pieces_come_back_after_calm_steps() -> None:
    guard = simple(calm=3)
    with FaultAt([5, 40]):
        assert guard.step(plain_batch()).pieces == 4
    pieces = [guard.step(plain_batch()).pieces for _ in range(10)]
    assert pieces == sorted(pieces, reverse=True)
    assert pieces[-1] == 1
    assert pieces[0] == 4


def test_larger_pieces_come_back_in_a_resumed_run() -> None:
    before, after = simple(calm=3), simple(calm=3)
    with FaultAt([5, 40]):
        assert before.step(plain_batch()).pieces == 4
    after.load_state_dict(before.state_dict())
    pieces = [after.step(plain_batch()).pieces for _ in range(10)]
    assert (pieces[0], pieces[-1]) == (4, 1)


def test_growing_that_fails_waits_twice_as_long() -> None:
    guard = simple(calm=2)
    with FaultAt([5]):
        guard.step(plain_batch())
    guard.step(plain_batch())
    with FaultAt([5]):  # the attempt with larger pieces
        report = guard.step(plain_batch())
    assert report.retries == 1
    assert report.pieces == 2
    assert guard.ladder._wait == 4


def test_a_forward_may_take_its_batch_apart() -> None:
    """A list is the forward's own: what it takes out is there again when the step is tried again."""
    guard = simple()

    def forward(model: nn.Module, batch: list[Tensor]) -> Tensor:
        targets = batch.pop()
        return nn.functional.mse_loss(model(batch.pop()), targets)

    batch = list(plain_batch())
    with FaultAt([5]):
        assert guard.step(batch, forward=forward).retries == 1
    assert len(batch) == 2


def test_single_numbers_belong_to_every_piece() -> None:
    seen: list[int] = []

    def forward(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        seen.append(int(batch[2]))
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    assert simple(pieces=2).step((*plain_batch(), torch.tensor(7)), forward=forward).pieces == 2
    assert seen == [7, 7]


def test_forced_pieces_stay() -> None:
    guard = simple(pieces=4, calm=1)
    assert [guard.step(plain_batch()).pieces for _ in range(4)] == [4] * 4
    assert guard.step(plain_batch(3)).pieces == 3


def test_ragged_batches_need_a_function_and_say_so() -> None:
    images, targets = torch.randn(4, 4), torch.randn(11, 6)

    def forward(model: nn.Module, batch: Any) -> Tensor:
        found: Tensor = model(batch[0]).pow(2).mean() + 0 * batch[1].sum()
        return found

    with pytest.raises(UsageError, match=r"4 and 11 rows.*split="):
        simple().step((images, targets), forward=forward)

    def cut(batch: Any, pieces: int) -> list[Any]:
        images, targets = batch
        bounds = [len(images) * index // pieces for index in range(pieces + 1)]
        return [
            (images[a:b], targets[(targets[:, 0] >= a) & (targets[:, 0] < b)]) for a, b in itertools.pairwise(bounds)
        ]

    assert simple(split=cut, pieces=2).step((images, targets), forward=forward).pieces == 2
    with pytest.raises(UsageError, match="made 1 pieces"):
        simple(split=lambda batch, pieces: [batch], pieces=2).step((images, targets), forward=forward)


def test_a_loss_that_is_no_scalar_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a tensor of shape \(8, 2\)"):
        simple(lambda outputs, targets: outputs - targets).step(plain_batch())
    with pytest.raises(UsageError, match="neither a loss nor a forward"):
        simple(None).step(plain_batch())
    with pytest.raises(UsageError, match="not a pair"):
        simple().step(plain_batch()[0])


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean scheduler"):
        simple(schedular=1)


def test_a_closure_optimizer_is_refused_by_name() -> None:
    net = plain_net()
    with pytest.raises(UsageError, match="LBFGS"):
        oomph.guard(model=net, optimizer=torch.optim.LBFGS(net.parameters()), loss=nn.functional.mse_loss)


def test_batch_norm_is_said_once_and_keeps_two_samples() -> None:
    rig = Rig(pieces=8)
    for batch in rig.batches(2):
        assert rig.guard.step(batch).pieces == 4
    assert len([one for one in rig.guard.notices if "BatchNorm" in one]) == 1


def test_a_loss_over_pairs_of_samples_is_noticed() -> None:
    def contrastive(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs @ targets.T, torch.arange(len(outputs)))

    guard = simple(contrastive)
    guard.step(plain_batch())
    assert not guard._notices.said, "a batch that isn't split"
    with FaultAt([5]):
        assert guard.step(plain_batch()).pieces == 2
    assert [one for one in guard.notices if "contrastive" in one]
    plain = simple(pieces=2)
    plain.step(plain_batch())
    assert plain.notices == ()


class Centred(nn.Module):
    """A loss with a state: a centre that moves, and a count."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(2))
        self.centre: Tensor
        self.calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        self.centre = 0.9 * self.centre + 0.1 * outputs.detach().mean(0)
        return nn.functional.mse_loss(outputs - self.centre, targets)


def test_a_run_that_is_not_split_calls_its_loss_as_a_plain_loop_does() -> None:
    loss = Centred()
    guard = simple(loss)
    for seed in range(3):
        guard.step(plain_batch(seed=seed))
    assert loss.calls == 3


def test_the_state_of_a_loss_belongs_to_the_step() -> None:
    """Looking at the loss leaves it as it was; a retry puts it back; a resumed run has it."""
    plain = Centred()
    net = plain_net()
    inputs, _ = plain_batch()
    for half in inputs.split(4):
        plain(net(half), torch.zeros(len(half), 2))
    checked = Centred()
    guard = simple(checked, pieces=2)
    guard.step(plain_batch())
    assert checked.calls == 2
    assert torch.equal(checked.centre, plain.centre)
    retried = Centred()
    other = simple(retried)
    with FaultIn("mse_loss_backward") as mode:
        mode.name = "mse_loss_backward"
        forward = other._work._loss

        def once(outputs: Tensor, targets: Tensor) -> Any:
            if mode.raised:
                mode.name = "no more"
            assert forward is not None
            return forward(outputs, targets)

        other._work._loss = once
        assert other.step(plain_batch()).pieces == 2
    assert torch.equal(retried.centre, plain.centre)
    resumed = Centred()
    third = simple(resumed)
    third.load_state_dict(other.state_dict())
    assert torch.equal(resumed.centre, plain.centre)


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, KeyError, OddError])
def test_a_loss_that_cannot_take_halves_tells_nothing(error: type[Exception]) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if len(outputs) != 4:
            raise error("pieces of four only")
        return nn.functional.mse_loss(outputs, targets)

    guard = simple(loss, pieces=2)
    assert guard.step(plain_batch(8)).pieces == 2
    assert guard.notices == ()


def test_a_loss_that_differentiates_is_not_disturbed() -> None:
    def loss(outputs: Tensor, inputs: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        return slope.pow(2).mean() + outputs.pow(2).mean()

    inputs = plain_batch()[0].requires_grad_()
    assert simple(loss).step((inputs, inputs)).pieces == 1


def test_validation_counts_every_sample_once_whatever_fails() -> None:
    class Metric:
        def __init__(self) -> None:
            self.seen: list[float] = []
            self.count = torch.zeros(())

        def update(self, outputs: Tensor) -> None:
            self.count += len(outputs)
            for value in outputs[:, 0]:
                self.seen.append(float(value))

    def run(faults: list[int]) -> tuple[list[int], Metric, int, torch.Tensor]:
        metric = Metric()
        rig = Rig(keep=(metric,))

        def judge(model: nn.Module, piece: Any) -> int:
            assert not model.training
            outputs = model(piece[0])
            metric.update(outputs)
            metric.update(outputs)
            return len(outputs)

        batches = rig.batches(2)
        with FaultAt(faults) as mode:
            sizes = rig.guard.evaluate(batches, judge)
        assert rig.net.training
        return sizes, metric, mode.count, rig.net.calls.clone()

    sizes, _, count, _ = run([])
    assert sizes == [8, 8]
    for k in range(1, count + 1):
        sizes, metric, _, calls = run([k])
        assert sum(sizes) == 16
        assert float(metric.count) == 32
        assert len(metric.seen) == 32
        assert int(calls) == len(sizes)


def test_validation_that_never_fits_ends_with_a_reason() -> None:
    guard = simple()
    with pytest.raises(RetriesExhausted), FaultIn("addmm"):
        guard.evaluate([plain_batch()], lambda model, piece: model(piece[0]))


def _validate(guard: Guard, samples: list[int], faults: dict[int, int]) -> list[int]:
    """The sizes of pieces of batches of so many samples; pieces of some sizes run short so often."""

    def judge(model: nn.Module, piece: Any) -> int:
        del model
        size = len(piece[0])
        if faults.get(size, 0):
            faults[size] -= 1
            raise torch.OutOfMemoryError(CUDA)
        return size

    found: list[int] = guard.evaluate([plain_batch(one) for one in samples], judge)
    return found


def test_validation_grows_back_after_calm_batches() -> None:
    guard = simple(calm=2)
    assert _validate(guard, [64], {64: 1, 32: 1}) == [16] * 4
    assert _validate(guard, [64], {}) == [16] * 4
    assert _validate(guard, [64] * 6, {})[-2:] == [64, 64]


def test_validation_that_can_not_grow_waits_longer_each_time() -> None:
    guard = simple(calm=1)
    faults = {64: 1000}
    sizes = _validate(guard, [64] * 40, faults)
    assert sizes == [32] * 80
    assert 1000 - faults[64] < 8


def test_the_rest_of_an_epoch_does_not_make_the_pieces_of_whole_batches_smaller() -> None:
    guard = simple()
    assert _validate(guard, [64, 1, 64], {1: 1}) == [64, 1, 64]
    assert _validate(guard, [64, 6, 64], {6: 2, 3: 1}) == [64, 2, 1, 3, 64]
    with pytest.raises(RetriesExhausted):
        _validate(guard, [64, 1, 64], {1: 2})


def test_a_state_goes_on_bit_for_bit(tmp_path: Path) -> None:
    for scaled in (False, True):
        whole = Rig(scaled=scaled)
        for batch in whole.batches(4):
            whole.guard.step(batch)
        first = Rig(scaled=scaled)
        for batch in first.batches(4)[:2]:
            first.guard.step(batch)
        first.guard.save(tmp_path / "run.pt")
        second = Rig(scaled=scaled)
        torch.manual_seed(99)
        second.guard.load(tmp_path / "run.pt")
        for batch in second.batches(4)[2:]:
            second.guard.step(batch)
        assert differences(second.state(), whole.state()) == []


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with pytest.raises(oomph.MissingFile):
        simple().load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(oomph.InvalidFile):
        simple().load(path)
    torch.save({"weights": 1}, path)
    with pytest.raises(oomph.InvalidFile):
        simple().load(path)
    with pytest.raises(oomph.MissingFile, match="no folder"):
        simple().save(tmp_path / "nowhere" / "x.pt")


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_finishes_the_step_saves_and_ends(
    tmp_path: Path, number: signal.Signals, error: type[BaseException]
) -> None:
    path = tmp_path / "run.pt"
    guard = simple(checkpoint=path)
    before = signal.getsignal(number)

    def loss(model: nn.Module, batch: Any) -> Tensor:
        os.kill(os.getpid(), number)
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    with pytest.raises(error), guard.signals():
        guard.step(plain_batch(), forward=loss)
    assert signal.getsignal(number) is before
    other = simple()
    other.load(path)
    assert other.steps == 1


def test_the_record_has_steps_and_faults(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run.jsonl") as recorder:
        guard = simple(recorder=recorder)
        guard.step(plain_batch())
        with FaultAt([3], MAKERS[1]):
            guard.step(plain_batch())
    record = load_record(tmp_path / "run.jsonl")
    assert [step["retries"] for step in record.steps] == [0, 1]
    assert record.steps[1]["pieces"] == 2
    assert [event["kind"] for event in record.events if event["event"] == "oom"] == ["cpu-out-of-memory"]


def test_several_optimizers_step_together_or_not_at_all() -> None:
    def build() -> tuple[Guard, list[torch.optim.Optimizer]]:
        net = plain_net()
        parts = list(net.parameters())
        optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(parts[:2], lr=0.1),
            torch.optim.SGD(parts[2:], lr=0.1, momentum=0.9),
        ]
        return oomph.guard(model=net, optimizer=optimizers, loss=nn.functional.mse_loss), optimizers

    batch = plain_batch()
    truth, _ = build()
    with FaultAt() as mode:
        truth.step(batch)
    unsplit = 0
    for k in range(1, mode.count + 1):
        guard, _ = build()
        with FaultAt([k]):
            pieces = guard.step(batch).pieces
        if pieces == 1:
            unsplit += 1
            assert differences(guard.state_dict(), truth.state_dict()) == []
    assert unsplit > 20


def test_a_transaction_of_ones_own_loop() -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        net = plain_net()
        return net, torch.optim.AdamW(net.parameters(), lr=0.1)

    def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        inputs, targets = plain_batch()
        nn.functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()

    truth, optimizer = build()
    train(truth, optimizer)
    with FaultAt() as mode:
        train(*build())
    faults = 0
    for k in range(1, mode.count + 1):
        net, optimizer = build()
        transaction = oomph.Transaction(net, optimizer)
        with FaultAt([k]):
            fault = transaction.run(lambda net=net, optimizer=optimizer: train(net, optimizer))  # type: ignore[misc]
        if fault is not None:  # a fault in the taking is survived by itself
            faults += 1
            assert "out of memory" in fault.words
            assert transaction.run(lambda net=net, optimizer=optimizer: train(net, optimizer)) is None  # type: ignore[misc]
        assert differences(dict(net.state_dict()), dict(truth.state_dict())) == []
    assert faults > 40


def test_a_fault_holds_no_tensors() -> None:
    import gc
    import weakref

    held: list[weakref.ref[Tensor]] = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        big = torch.randn(1000)
        held.append(weakref.ref(big))
        if len(held) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
        assert held[0]() is None, "the failed attempt is still in memory when the next one begins"
        found: Tensor = model(batch[0]).sum() * big.sum()
        return found

    gc.disable()
    try:
        simple().step(plain_batch(), forward=forward)
    finally:
        gc.enable()
    assert len(held) == 3


def test_a_batch_that_was_changed_in_place_is_not_tried_again() -> None:
    """The change would happen twice, and the step learn from something else."""

    def forward(model: nn.Module, batch: Any) -> Tensor:
        batch["image"] /= 255
        return nn.functional.mse_loss(model(batch["image"]), batch["target"])

    inputs, targets = plain_batch()
    guard = simple()
    guard.step({"image": inputs.clone(), "target": targets}, forward=forward)
    before = {name: one.clone() for name, one in guard.model.state_dict().items()}
    with pytest.raises(UsageError, match=r"changed its batch in place.*x = x / 255"), FaultIn("addmm"):
        guard.step({"image": inputs.clone(), "target": targets}, forward=forward)
    assert differences(dict(guard.model.state_dict()), before) == []
    with torch.inference_mode():
        made = plain_batch()
    with FaultAt([5]):  # nobody counts the changes of these, nor can they be changed in training
        assert guard.step(made, forward=lambda model, batch: model(batch[0].clone()).mean()).retries == 1
