from __future__ import annotations

import pytest

from oomph.errors import UsageError
from oomph.machine import find_target


def test_versions_are_those_that_oomph_was_measured_with_by_default() -> None:
    target = find_target("H200")
    assert (target.torch, target.cudnn, target.cudnn_number) == ("2.11", "9.19", 91900)


@pytest.mark.parametrize(
    ("torch", "cudnn"),
    [("1.13", "8.9"), ("2.3.1", "8.9"), ("2.6", "9.1"), ("2.7.0+cu126", "9.5"), ("2.10", "9.10"), ("2.12", "9.19")],
)
def test_torch_brings_its_cudnn(torch: str, cudnn: str) -> None:
    target = find_target("RTX 3060", torch=torch)
    assert (target.torch, target.cudnn) == (torch, cudnn)


def test_cudnn_may_differ_from_the_bundled_one() -> None:
    target = find_target("p4d.24xlarge", torch="2.6", cudnn="9.16.0.29")
    assert (target.torch, target.cudnn_number) == ("2.6", 91600)


@pytest.mark.parametrize("version", ["", "two", "2", "2.x", "-2.6", "2.6a"])
def test_what_is_no_version_is_rejected(version: str) -> None:
    with pytest.raises(UsageError, match="the version of torch is"):
        find_target("H200", torch=version)
    with pytest.raises(UsageError, match="the version of cuDNN is"):
        find_target("H200", cudnn=version)


def test_context_of_a_consumer_gpu_leaves_room_for_a_run_that_ran() -> None:
    # A public run on an RTX 4060 with 7,933 MiB used 7,560 MiB in addition to its context.
    assert find_target("RTX 4060").outside[1] <= (7933 - 7560) << 20 < find_target("H200").outside[1]
