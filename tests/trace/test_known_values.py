"""Values that depend on neither weights nor data keep their value, so that branches are taken as in training."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.job import Job
from oomph.settings import Settings
from oomph.trace import CudaDevice, Trace, trace_step


def batch(count: int, _: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 64), torch.randn(count, 64)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1)


def job_of(step: Callable[[nn.Module, Any], Tensor], **changes: Any) -> Job:
    parts: dict[str, Any] = {"model": lambda: nn.Linear(64, 64), "batch": batch, "step": step, "optimizer": sgd}
    return Job(**{**parts, **changes})


def traced(job: Job, count: int = 4) -> Trace:
    return trace_step(job, Settings(batch=count), CudaDevice())


def activations(trace: Trace) -> int:
    return sum(storage.op == "aten.tanh.default" for storage in trace.storages)


class LayerDrop(nn.Module):
    """Skips layers at random, as BART and Whisper do."""

    def __init__(self, rate: float, draw: Callable[[], Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.head = nn.Linear(64, 64)
        self.rate, self.draw = rate, draw

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.training and self.draw() < self.rate:
                continue
            x = layer(x).tanh()
        return self.head(x)


def uniform() -> Tensor:
    return torch.rand([])


DRAWS: list[Callable[[], Any]] = [
    uniform,
    lambda: torch.rand(1).item(),
    lambda: torch.empty(1).uniform_(),
    lambda: torch.rand(4, generator=torch.Generator())[1],
    lambda: float(torch.randint(0, 100, ())) / 100,
]


@pytest.mark.parametrize("draw", DRAWS)
def test_layers_that_are_never_skipped_are_certain(draw: Callable[[], Any]) -> None:
    job = Job(model=lambda: LayerDrop(0.0, draw), batch=batch, loss=F.mse_loss, optimizer=sgd)
    trace = traced(job)
    assert activations(trace) == 4 * 3 + 4  # three steps and validation
    assert trace.assumptions == ()
    assert trace.guesses == ()


@pytest.mark.medium
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_random_branch_that_needs_more_memory_counts(rate: float, draw: Callable[[], Any]) -> None:
    job = Job(model=lambda: LayerDrop(rate, draw), batch=batch, loss=F.mse_loss, optimizer=sgd)
    trace = traced(job, 4096)
    assert activations(trace) == 4 * 3 + 4
    assert any(guess.is_branch and "test_known_values.py" in guess.line for guess in trace.guesses)


@pytest.mark.medium
def test_random_branch_widens_the_ranges() -> None:
    def predict(rate: float) -> oomph.Prediction:
        job = Job(model=lambda: LayerDrop(rate, uniform), batch=batch, loss=F.mse_loss, optimizer=sgd)
        return oomph.predict(job, Settings(batch=4096), "H200")

    certain, guessed = predict(0.0), predict(0.1)
    assert guessed.allocated.value == certain.allocated.value
    assert guessed.allocated.high > 1.09 * certain.allocated.high
    assert guessed.needed.low < 0.9 * certain.needed.low
    assert any("ranges are wider" in assumption for assumption in guessed.assumptions)


@pytest.mark.parametrize(
    "condition",
    [
        lambda: torch.tensor(3).item() == 3,
        lambda: torch.tensor([1.0, 2.0]).tolist() == [1.0, 2.0],
        lambda: torch.linspace(0, 1, 5)[2] == 0.5,
        lambda: torch.arange(10).sum() == 45,
        lambda: bool((torch.zeros(3) == 0).all()),
        lambda: torch.full((4,), 7).numpy().max() == 7,
        lambda: torch.ones(5).bool().nonzero().shape == (5, 1),
        lambda: torch.tensor([1, 0, 2])[torch.tensor([True, False, True])].tolist() == [1, 2],
        lambda: torch.equal(torch.eye(2), torch.ones(2).diag()),
        lambda: torch.arange(4).to("cuda").cpu().cumsum(0)[-1] == 6,
        lambda: torch.tensor([2, 3]).repeat_interleave(torch.tensor([1, 2])).tolist() == [2, 3, 3],
        lambda: torch.zeros(4, device="cuda").index_fill_(0, torch.tensor([1]), 5.0)[1] == 5,
        lambda: torch.tensor([3, 1, 3]).unique().tolist() == [1, 3],
    ],
)
def test_values_are_those_of_real_tensors(condition: Callable[[], Any]) -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        if not condition():
            raise ValueError("a value was lost")
        return F.mse_loss(model(samples[0]), samples[1])

    assert traced(job_of(step)).assumptions == ()


def test_value_that_data_overwrites_is_forgotten_with_its_views() -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        table = torch.zeros(4)
        row = table[1:3]
        row[0] = samples[0].mean()
        if table[1] == 0:
            raise ValueError("the value before the write")
        return F.mse_loss(model(samples[0]), samples[1])

    assert traced(job_of(step)).guesses


def test_weights_have_no_value() -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        bias: Any = model.bias
        if bias.sum() != 0:
            samples = [tensor * 2 for tensor in samples]
        return F.mse_loss(model(samples[0]), samples[1])

    assert [guess for guess in traced(job_of(step)).guesses if "bias.sum()" in guess.line]


def test_data_is_named_with_the_line_that_read_it() -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        out = model(samples[0])
        if out.mean() > 0.3:
            out = out.tanh().sigmoid()
        return F.mse_loss(out, samples[1])

    trace = traced(job_of(step), 4096)
    (guess,) = trace.guesses
    assert guess.is_branch
    assert re.search(r"test_known_values\.py:\d+ `if out\.mean\(\) > 0\.3:`", guess.line)
    assert any(guess.line in assumption for assumption in trace.assumptions)
    assert activations(trace) > 0  # the branch that needs more memory


def test_check_of_the_data_is_no_branch() -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        if samples[0].abs().max() > 100:
            raise ValueError("bad data")
        return F.mse_loss(model(samples[0]), samples[1])

    trace = traced(job_of(step))
    assert len(trace.guesses) == 1
    assert not trace.guesses[0].is_branch


def test_lengths_in_the_batch_are_an_example() -> None:
    def lengths(count: int, _: Any) -> tuple[Tensor, Tensor]:
        return torch.randn(count, 64), torch.full((count,), 7)

    def step(model: nn.Module, samples: Any) -> Tensor:
        assert samples[1].max().item() == 7
        return model(samples[0]).sum()

    (guess,) = traced(job_of(step, batch=lengths)).guesses
    assert "example batch" in guess.text


@pytest.mark.medium
def test_loop_that_cannot_end_is_ended_with_its_line() -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        out = model(samples[0])
        while out.norm() > 1:
            out = out / 2
        return out.sum()

    with pytest.raises(UsageError, match=r"does not end .*test_known_values\.py:\d+ `while out\.norm\(\) > 1:`"):
        traced(job_of(step))


@pytest.mark.medium
def test_prediction_is_the_same_in_every_run() -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        rows = int(torch.randperm(20)[0]) + int(torch.randn(()).abs() * 10) + 1
        return model(samples[0].repeat(rows, 1)).square().mean()

    assert traced(job_of(step)) == traced(job_of(step))


def masked_job(mask: Callable[[int], Tensor]) -> Job:
    """Return a Job that needs more memory if something is padded, as transformers' models do."""

    def step(model: nn.Module, data: Any) -> Tensor:
        x, padding = data
        y = model(x)
        return y.mean() if padding.bool().all() else y.tanh().exp().mean()

    return job_of(step, batch=lambda count, _: (torch.randn(count, 64), mask(count)))


MASKS: list[tuple[Callable[[int], Tensor], bool]] = [
    (lambda count: torch.ones(count, 64, dtype=torch.long), False),
    (lambda count: torch.ones_like(torch.randn(count, 64), dtype=torch.bool), False),
    (lambda count: torch.randint(3, 9, (count, 64)).new_ones(count, 64), False),
    (lambda count: (torch.arange(64) < 60).long().repeat(count, 1), True),
]


@pytest.mark.parametrize(("mask", "is_expensive"), MASKS)
def test_mask_of_the_example_batch_stands_for_the_data(mask: Callable[[int], Tensor], *, is_expensive: bool) -> None:
    trace = traced(masked_job(mask), 512)
    assert (activations(trace) > 0) is is_expensive
    (guess,) = trace.guesses
    assert guess.text == "the mask of the Job's example batch stands for those of the data"
    assert "padding.bool().all()" in guess.line
    assert guess.is_branch is not is_expensive  # other masks than one without padding need more


@pytest.mark.parametrize(
    "labels",
    [
        lambda count: torch.randint(0, 2, (count, 64)),
        lambda count: torch.randint(0, 9, (count, 64)),
        lambda count: torch.rand(count, 64) > 0.1,
        lambda count: torch.ones(count, 64),
    ],
)
def test_other_data_of_the_example_batch_is_not_known(labels: Callable[[int], Tensor]) -> None:
    trace = traced(masked_job(labels), 512)
    assert activations(trace) > 0
    assert all("depends on data counts as" in guess.text for guess in trace.guesses)


def test_large_tensor_of_ones_is_certain() -> None:
    def step(model: nn.Module, data: Any) -> Tensor:
        x, _ = data
        mask = torch.ones(x.shape[0], 64)
        return model(x).mean() if mask.all() else model(x).tanh().mean()

    trace = traced(job_of(step), 512)
    assert activations(trace) == 0
    assert trace.guesses == ()
