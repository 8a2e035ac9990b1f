from __future__ import annotations

from dataclasses import replace

import pytest

from oomph.planner import PredictionTable, TableChoice, TablePosition
from oomph.planner.explorer._table import PEAK_KINDS, Axis, Device, Need, Steps
from oomph.settings import Settings

NO_KINDS = (0,) * len(PEAK_KINDS)


def need(reserved: int) -> Need:
    return Need(reserved, reserved - 1, NO_KINDS)


def row(*sizes: int) -> tuple[tuple[Need, ...], ...]:
    return (tuple(need(size) for size in sizes),)


TABLE = PredictionTable(
    settings=Settings(batch=8, size=32),
    devices=(Device("GPU", "group", 1200, (10.0, 20.0, 30.0)),),
    precisions=(TableChoice("fp32", "fp32"),),
    checkpointings=(TableChoice("none", "none"), TableChoice(("a.b", "c"), "planned modules")),
    optimizers=(TableChoice("fused", "fused"), TableChoice("8bit", "8bit", "SGD has no 8-bit states")),
    samples=Axis((1, 2, 4, 8)),
    sizes=Axis((32,)),
    steps={"group|fp32|none|fused": Steps(row(100, 200, 400, 800), row(150, 260, 470, 900), 0.9, 1.2, 0.5, 0.125)},
    seconds={"GPU|fp32|none": ((1.0, 2.0, 3.0, 6.0),)},
    sum_seconds={"GPU|fp32|none": 0.5},
    update_seconds={"GPU|fp32|fused": 4.0},
    update_launching={"fp32|fused": 0.25},
    overlaps=False,
    is_derived=True,
    assumptions=(),
)


def at(batch: int, micro_batch: int) -> TablePosition:
    return TablePosition("GPU", batch, micro_batch, 32, "fp32", "none", "fused")


@pytest.mark.parametrize(
    ("batch", "micro_batch", "reserved"),
    [
        (8, 8, 800),  # in one piece
        (8, 4, 470),  # beside the gradients of the micro-batches before
        (5, 4, 400),  # a smaller second micro-batch: the first one has the peak
        (7, 4, 470),  # 3 more samples count as 4
    ],
)
def test_memory_is_that_of_the_largest_micro_batch(batch: int, micro_batch: int, reserved: int) -> None:
    estimate = TABLE.lookup(at(batch, micro_batch))
    assert estimate.need.reserved == reserved
    assert estimate.memory.value == reserved + 20
    assert estimate.memory.low == pytest.approx(reserved * 0.9 + 10)
    assert estimate.memory.high == pytest.approx(reserved * 1.2 + 30)


def test_it_fits_if_the_upper_end_of_the_range_does() -> None:
    assert TABLE.lookup(at(8, 8)).memory.high < 1200
    assert TABLE.lookup(at(8, 8)).fits
    device = replace(TABLE.devices[0], memory=900)  # above the value, below the upper end
    assert not replace(TABLE, devices=(device,)).lookup(at(8, 8)).fits


def test_seconds_add_micro_batches_sums_of_gradients_and_the_update() -> None:
    assert TABLE.lookup(at(8, 8)).seconds.value == 6 + 4
    assert TABLE.lookup(at(8, 2)).seconds.value == 4 * 2 + 3 * 0.5 + 4
    assert TABLE.lookup(at(7, 4)).seconds.value == 3 + 2.5 + 0.5 + 4  # 3 samples are between 2 and 4


def test_on_a_gpu_launching_overlaps_with_running() -> None:
    seconds = replace(TABLE, overlaps=True).lookup(at(8, 2)).seconds
    launching = 4 * 0.5 + 3 * 0.125 + 0.25
    assert seconds.value == pytest.approx((13.5**4 + launching**4) ** 0.25)
    assert (seconds.low, seconds.high) == (seconds.value / 2, seconds.value * 2)


def test_micro_batches_are_the_batch_or_at_most_half_of_it() -> None:
    assert TABLE.micro_batches(8) == (1, 2, 4, 8)
    assert TABLE.micro_batches(4) == (1, 2, 4)
    assert TABLE.micro_batches(1) == (1,)


def test_settings_and_positions_are_inverse() -> None:
    settings = Settings(batch=8, micro_batch=4, size=32, checkpointing=("a.b", "c"), optimizer="fused")
    position = TABLE.position(settings, "GPU")
    assert position.checkpointing == "planned modules"
    assert TABLE.settings_at(position) == settings
    assert TABLE.settings_at(at(8, 8)).micro_batch is None
