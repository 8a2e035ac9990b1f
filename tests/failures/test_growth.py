from __future__ import annotations

import pytest

from oomph.failures import read_log
from oomph.failures._growth import find_growth
from oomph.units import GIB

ERROR = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 15.77 GiB "
    "of which 20.00 MiB is free. Including non-PyTorch memory, this process has 15.70 GiB memory in use. Of the "
    "allocated memory 15.20 GiB is allocated by PyTorch, and 80.00 MiB is reserved by PyTorch but unallocated."
)


def lines(form: str, *values: float) -> str:
    return "".join(form.format(value) + "\n" for value in values)


@pytest.mark.parametrize(
    "form",
    [
        "epoch 3 | loss 0.7 | cuda allocated {} GiB",
        "Epoch 1: 100%|███| 9/9 [00:03<00:00, gpu_mem={}G]",
        "step 100 max_mem: {}G",
        "GPU memory used: {} GB",
        "VRAM {} GiB",
    ],
)
def test_memory_of_the_gpu_that_grows_at_a_steady_rate_is_growth(form: str) -> None:
    growth = find_growth(lines(form, 2, 4, 6, 8))
    assert growth is not None
    assert (growth.first, growth.last, growth.is_host) == (2 * GIB, 8 * GIB, False)


@pytest.mark.parametrize(
    "values",
    [
        (2, 4, 6),  # too few
        (2, 6, 8, 8.1, 8.2),  # a run that warms up
        (2, 4, 6, 8, 8),  # it had stopped
        (8, 8.1, 8.2, 8.3),  # hardly anything
        (2, 4, 3, 5, 4),
    ],
)
def test_other_changes_are_no_growth(values: tuple[float, ...]) -> None:
    assert find_growth(lines("allocated {} GiB", *values)) is None


def test_only_the_last_rise_counts() -> None:
    growth = find_growth(lines("RSS: {} GB", 3, 5, 7, 9, 3, 5, 7, 9))
    assert growth is not None
    assert (growth.first, growth.last, growth.is_host) == (3 * GIB, 9 * GIB, True)


def test_an_error_after_growing_memory_is_explained_as_a_leak_and_not_by_the_batch() -> None:
    finding = read_log(lines("epoch: gpu_mem={}G loss 0.4", 3, 6, 9, 12, 15) + ERROR)[0]
    assert "Memory grew steadily before it, from 3 GiB to 15 GiB: something keeps objects alive." in finding.details
    assert "loss.item()" in finding.advice[0].command
    assert "loss.item()" not in read_log(ERROR)[0].advice[0].command


def test_a_kill_after_growing_ram_is_explained_as_a_leak() -> None:
    finding = read_log(lines("epoch 1 rss {} GB", 20, 40, 60, 80, 100) + "Killed")[0]
    assert "RAM grew steadily before it, from 20 GiB to 100 GiB: something keeps objects alive." in finding.details


def test_ram_that_grows_does_not_explain_an_error_of_the_gpu() -> None:
    finding = read_log(lines("epoch 1 rss {} GB", 20, 40, 60, 80, 100) + ERROR)[0]
    assert not any("grew" in detail for detail in finding.details)
