"""Ctrl-C and SIGTERM: the step is finished, the run is saved, then it stops."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.monitor import Recorder, load_record
from oomph.recovery._signals import DeferSignals

from .faults import in_split_check
from .nets import guard_of, plain_batch, plain_guard, plain_net


def signaling_forward(signum: int, times: int = 1) -> Callable[..., Tensor]:
    """Return a forward in which the process gets a signal."""

    def forward(model: nn.Module, batch: Any) -> Tensor:
        for _ in range(0 if in_split_check() else times):
            os.kill(os.getpid(), signum)
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    return forward


@pytest.mark.parametrize(("signum", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_finishes_the_step_saves_and_stops(
    tmp_path: Path, signum: signal.Signals, error: type[BaseException]
) -> None:
    path, before = tmp_path / "run.pt", signal.getsignal(signum)
    with Recorder(tmp_path / "run.jsonl") as recorder:
        guard = plain_guard(checkpoint=path, recorder=recorder)
        with pytest.raises(error), guard.signals():
            guard.step(plain_batch(), forward=signaling_forward(signum))
    assert signal.getsignal(signum) is before
    other = plain_guard()
    other.load(path)
    assert other.steps == 1
    assert "stopped" in [event["event"] for event in load_record(tmp_path / "run.jsonl").events]


@pytest.mark.parametrize(("signum", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_second_signal_stops_at_once(signum: signal.Signals, error: type[BaseException]) -> None:
    guard = plain_guard()
    with pytest.raises(error), guard.signals():
        guard.step(plain_batch(), forward=signaling_forward(signum, times=2))
    assert guard.steps == 0


def test_a_signal_during_validation_stops_after_the_batch(tmp_path: Path) -> None:
    guard = plain_guard(checkpoint=tmp_path / "run.pt")
    batches = []

    def function(model: nn.Module, batch: Any) -> None:
        del model
        batches.append(batch)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as caught, guard.signals():
        guard.evaluate([plain_batch()] * 3, function)
    assert caught.value.code == 128 + signal.SIGTERM
    assert len(batches) == 1
    assert (tmp_path / "run.pt").exists()


def test_a_signal_after_the_last_step_stops_at_the_end(tmp_path: Path) -> None:
    guard = plain_guard(checkpoint=tmp_path / "run.pt")
    guard.step(plain_batch())
    with pytest.raises(KeyboardInterrupt), guard.signals():
        os.kill(os.getpid(), signal.SIGINT)
    assert (tmp_path / "run.pt").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_handler_of_the_user_is_called_after_the_deferral(signum: signal.Signals) -> None:
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)

    before = signal.signal(signum, handle)
    try:
        for number in range(2):
            with DeferSignals():
                signal.raise_signal(signum)
                assert len(received) == number
            assert signal.getsignal(signum) is handle
        assert received == [signum] * 2
    finally:
        signal.signal(signum, before)


def test_a_deferral_that_was_left_by_another_signal_does_not_last() -> None:
    defer = DeferSignals()
    defer.__enter__()  # and never left
    with pytest.raises(KeyboardInterrupt), defer:
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_not_lost_if_there_is_also_an_error() -> None:
    def fail() -> None:
        with DeferSignals():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("the label is 7")

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, ValueError)


def test_a_step_in_a_thread_does_not_touch_signal_handlers() -> None:
    net = plain_net()
    guard = guard_of(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1, fused=True))

    def work() -> bool:
        with guard.signals():
            return guard.step(plain_batch()).updated

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(work).result()
    assert guard.steps == 1


def test_a_request_ends_with_the_context() -> None:
    guard = plain_guard()

    def fail() -> None:
        with guard.signals():
            signal.raise_signal(signal.SIGTERM)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    guard.step(plain_batch())
    assert guard.steps == 1
