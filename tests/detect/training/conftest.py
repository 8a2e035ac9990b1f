from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oomph.detect import DemoSize, detection_job, write_demo_dataset
from oomph.detect.training import _planning
from oomph.prediction import Prediction, predict
from oomph.settings import Settings
from oomph.units import MIB


@pytest.fixture(scope="session")
def demo_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data.yaml of a demo dataset with 24 training and 8 validation images."""
    return write_demo_dataset(tmp_path_factory.mktemp("demo"), DemoSize(train=24, val=8))


@pytest.fixture(scope="session")
def prediction() -> Prediction:
    """The prediction of a small training step."""
    return predict(detection_job("n", 4), Settings(batch=2, size=64), "cpu")


@pytest.fixture(scope="module")
def quick_predictions(prediction: Prediction) -> Iterator[None]:
    """Predict the same for all settings, plus one MiB per sample of a micro-batch; a real prediction takes seconds."""

    def quick(_: Any, settings: Settings, __: Any) -> Prediction:
        samples = settings.micro_batch or settings.batch
        return prediction.with_memory(lambda estimate: estimate.plus(samples * MIB))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_planning, "predict", quick)
        yield
