from __future__ import annotations

import dataclasses

from oomph.planner import MicroBatchEstimate, estimate_micro_batch
from oomph.prediction import Estimate, Origin, Peak, Prediction
from oomph.settings import Settings
from oomph.units import MIB

ZERO = Estimate(0, 0, 0, Origin.TRACED)


def test_estimate_micro_batch_follows_the_peak() -> None:
    prediction = Prediction(
        target="H200",
        allocated=ZERO,
        reserved=ZERO,
        needed=ZERO,
        full_speed=ZERO,
        device=Estimate(1000 * MIB, 1000 * MIB, 1000 * MIB, Origin.TRACED),
        host=ZERO,
        seconds=ZERO,
        peak=Peak("backward", 1, "mm", "", (("saved activation", 800 * MIB), ("parameter", 200 * MIB)), ()),
        phases=(),
        assumptions=(),
    )
    estimate = estimate_micro_batch(prediction, Settings(batch=8), 650 * MIB)
    assert estimate == MicroBatchEstimate(4, 600 * MIB)
    assert estimate_micro_batch(prediction, Settings(batch=8), 250 * MIB) == MicroBatchEstimate(0, 200 * MIB)
    in_update = dataclasses.replace(prediction, peak=dataclasses.replace(prediction.peak, phase="optimizer"))
    assert estimate_micro_batch(in_update, Settings(batch=8), 650 * MIB) is None
