"""Where a driver spills instead of refusing, torch is capped below that."""

from __future__ import annotations

import pytest

from oomph.recovery._spill import Room, fraction_below_spill
from oomph.units import GIB, MIB

WSL = "5.15.153.1-microsoft-standard-WSL2"


@pytest.mark.parametrize(
    ("system", "release"), [("Windows", "11"), ("Linux", WSL), ("Linux", WSL.replace("m", "M", 1))]
)
def test_where_the_driver_spills_torch_stays_a_little_below_what_is_free(system: str, release: str) -> None:
    fraction = fraction_below_spill(system, release, Room(total=24 * GIB, free=20 * GIB))
    assert fraction is not None
    left = 20 * GIB - fraction * 24 * GIB
    assert 256 * MIB <= left < GIB


def test_what_torch_holds_already_is_its_own() -> None:
    small = fraction_below_spill("Windows", "10", Room(total=8 * GIB, free=2 * GIB, reserved=5 * GIB))
    assert small == pytest.approx((7 * GIB - 256 * MIB) / (8 * GIB))


def test_a_full_gpu_leaves_nothing() -> None:
    assert fraction_below_spill("Windows", "11", Room(total=8 * GIB, free=100 * MIB)) == 0


@pytest.mark.parametrize("release", ["6.8.0-45-generic", "5.14.0-427.el9.x86_64"])
def test_on_a_plain_linux_the_driver_refuses_by_itself(release: str) -> None:
    assert fraction_below_spill("Linux", release, Room(total=24 * GIB, free=20 * GIB)) is None
