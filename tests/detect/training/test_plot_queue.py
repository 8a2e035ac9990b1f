from __future__ import annotations

from collections.abc import Callable

import pytest

from oomph.detect.training._plot_queue import PlotQueue


def test_the_latest_plot_of_each_name_is_drawn_once_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    saved: list[tuple[str, bytes]] = []

    def save(name: str, draw: Callable[[], bytes]) -> None:
        saved.append((name, draw()))

    queue = PlotQueue(save)
    queue.add("a", lambda: b"1")
    queue.draw()
    assert saved == [("a", b"1")]  # the first ones at once
    now += 59
    queue.add("a", lambda: b"2")
    queue.add("b", lambda: b"3")
    queue.draw()
    assert len(saved) == 1
    queue.add("a", lambda: b"4")
    now += 1
    queue.draw()
    assert sorted(saved[1:]) == [("a", b"4"), ("b", b"3")]
    queue.draw(at_once=True)
    assert len(saved) == 3
    queue.add("a", lambda: b"5")
    queue.draw(at_once=True)
    assert saved[3:] == [("a", b"5")]
