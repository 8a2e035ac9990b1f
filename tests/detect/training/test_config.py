from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oomph
from oomph.detect import TrainConfig, demo_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cfg": "q"}, "'q' is not a network; choose one of n, s, m, l, x, mobilenet, shufflenet, depthwise"),
        ({"batch": 0}, "batch is 0; use at least 1, or -1"),
        ({"epochs": 0}, "epochs is 0; use at least 1"),
        ({"imgsz": 8}, "the image size is 8; use at least 32"),
        ({"precision": "fp8"}, "precision is 'fp8'; choose one of fp32, amp-bf16, amp-fp16"),
        ({"workers": -1}, "workers is -1; use at least 1, or 0 for an automatic choice"),
        ({"patience": -1}, "patience is -1; use at least 0"),
        ({"val_interval": 0}, "val_interval is 0; use at least 1"),
        ({"checkpoint_minutes": float("nan")}, "checkpoint_minutes is nan; use at least 0"),
        ({"freeze": 25}, "freeze is 25; use at most 24: the head must be trained"),
        ({"tiles": 16}, "tiles of 16 pixels are too small"),
    ],
)
def test_invalid_settings_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(oomph.UsageError) as caught:
        TrainConfig(data=Path("data.yaml"), run_dir=Path("run"), **changes)
    assert message in str(caught.value)


def test_the_demo_trains_a_small_network_on_small_images() -> None:
    config = demo_config(Path("data.yaml"), Path("run"))
    assert (config.cfg, config.imgsz, config.hyp.nominal_batch) == ("n", 128, 40)
