from __future__ import annotations

import time

import pytest

from oomph.monitor._cost_limit import CostLimit


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_cheap_reading_is_due_after_the_interval(clock: list[float]) -> None:
    limit = CostLimit(interval=15, fraction=0.01)
    assert bool(limit.is_due) is True
    with limit.measure():
        clock[0] += 0.001
    clock[0] = 114.9
    assert bool(limit.is_due) is False
    clock[0] = 115
    assert bool(limit.is_due) is True


def test_an_expensive_reading_is_due_later_even_if_it_fails(clock: list[float]) -> None:
    limit = CostLimit(interval=1, fraction=0.01)

    def fail() -> None:
        with limit.measure():
            clock[0] += 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock[0] = 299
    assert bool(limit.is_due) is False
    clock[0] = 300
    assert bool(limit.is_due) is True
