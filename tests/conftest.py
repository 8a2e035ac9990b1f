"""What every test needs of its process, and a prediction to plan with."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from oomph import Job, Settings, predict
from oomph.detect.training.planning import _plan_training
from oomph.machine import find_target
from oomph.planner import PredictionTable, _predictor, build_prediction_table
from oomph.prediction import Prediction
from oomph.trace import Trace, trace_profile
from oomph.units import MIB
from tests.browser import chromium
from tests.planner.explorer.tables import classifier_job

# A process that was started in the background of a shell ignores Ctrl-C, one under nohup SIGHUP, and so would every
# process that tests start to send it a signal. A handler of our own is not inherited: they begin with the system's.
if threading.current_thread() is threading.main_thread():
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *_: None)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


QUICK_JOB = Job(
    model=lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU()),
    batch=lambda n, _: (torch.randn(n, 3, 64, 64), torch.zeros(n)),
    loss=lambda outputs, targets: (outputs.mean((1, 2, 3)) - targets).square().mean(),
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
)


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Restore the level of our log, which a rank of `oomph train` in this process raises."""
    log = logging.getLogger("oomph")
    level = log.level
    yield
    log.setLevel(level)


@pytest.fixture(scope="session")
def classifier_table() -> PredictionTable:
    """The explorer's table of a small classifier, for a budget of 1 GiB on an RTX 3060."""
    settings = Settings(batch=4, size=16, memory_format="channels_last")
    return build_prediction_table(classifier_job, settings, find_target("RTX 3060"), budget=2**30)


@pytest.fixture(scope="session")
def prediction() -> Prediction:
    """The prediction of a training step that is traced quickly."""
    return predict(QUICK_JOB, Settings(batch=2), "cpu")


@pytest.fixture(scope="module")
def quick_predictions(prediction: Prediction) -> Iterator[None]:
    """Predict the same for all settings, plus one MiB per sample of a micro-batch; tracing a detector takes seconds."""

    def quick(_: Any, settings: Settings, __: Any) -> Prediction:
        samples = settings.micro_batch or settings.batch
        return prediction.with_memory(lambda estimate: estimate.plus(samples * MIB))

    def quick_profile(_: Any, settings: Settings, device: Any) -> Trace:
        return trace_profile(QUICK_JOB, settings, device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_plan_training, "predict", quick)
        patch.setattr(_predictor, "predict", quick)
        patch.setattr(_predictor, "trace_profile", quick_profile)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser, or a skipped test where there is none."""
    with chromium() as program:
        yield program
