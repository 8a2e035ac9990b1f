"""Heartbeats between ranks, with the watchdogs of several ranks in one process."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from oomph.distributed import _watchdog
from oomph.distributed._watchdog import Watchdog
from oomph.monitor import Recorder, load_record

BEAT_SECONDS = 0.02
TIMEOUT_SECONDS = 1.0
GRACE_SECONDS = 0.5


class Ranks:
    """Creates watchdogs that share a store, and notes the exit code with which one of them ends the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store: Any = HashStore()
        self.exit_codes: list[int] = []
        self.has_ended = threading.Event()
        self._watchdogs: list[Watchdog] = []
        monkeypatch.setattr(_watchdog, "_connect_to_store", lambda: self.store)
        monkeypatch.setattr(_watchdog, "_guard_numbers", itertools.repeat(1))
        monkeypatch.setattr(_watchdog, "_BEAT_SECONDS", BEAT_SECONDS)
        monkeypatch.setattr(_watchdog, "_GRACE_SECONDS", GRACE_SECONDS)
        monkeypatch.setattr(os, "_exit", self._note_exit)

    def _note_exit(self, code: int) -> None:
        self.exit_codes.append(code)
        self.has_ended.set()

    def create(self, rank: int, *, is_started: bool = True, recorder: Recorder | None = None) -> Watchdog:
        watchdog = Watchdog(rank, 2, TIMEOUT_SECONDS, recorder)
        self._watchdogs.append(watchdog)
        if is_started:
            watchdog.start()
        return watchdog

    def wait_for_end(self) -> None:
        assert self.has_ended.wait(10)

    def close(self) -> None:
        for watchdog in self._watchdogs:
            watchdog._stopped.set()
            if watchdog._thread.is_alive():
                watchdog._thread.join(5)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    ranks = Ranks(monkeypatch)
    yield ranks
    ranks.close()


def wait_until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < until
        time.sleep(BEAT_SECONDS)


@pytest.mark.medium
def test_ranks_with_heartbeats_continue(ranks: Ranks) -> None:
    for watchdog in (ranks.create(0), ranks.create(1)):
        watchdog.busy = True
    assert not ranks.has_ended.wait(TIMEOUT_SECONDS + GRACE_SECONDS + 0.2)


@pytest.mark.medium
def test_a_silent_rank_ends_the_others_with_the_reason(
    ranks: Ranks, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Recorder(tmp_path / "run.jsonl") as recorder:
        ranks.create(1, is_started=False)
        ranks.create(0, recorder=recorder)
        ranks.wait_for_end()
    assert ranks.exit_codes == [1]
    assert "oomph: rank 0 stops: rank 1 sent no heartbeat for 1 s" in capsys.readouterr().err
    (event,) = [event for event in load_record(tmp_path / "run.jsonl").events if event["event"] == "error"]
    assert event["error"] == "RankLost"
    assert "rank 1 sent no heartbeat" in event["text"]


def test_the_first_announced_reason_reaches_every_rank(ranks: Ranks) -> None:
    first, second = ranks.create(0), ranks.create(1)
    second.announce_failure("ValueError: the label\n is 7.")
    second.announce_failure("RankLost: rank 0 is gone")
    wait_until(lambda: first._reason is not None)
    assert first.reason("connection closed") == "rank 1: ValueError: the label is 7"


def test_without_an_announcement_the_error_is_the_reason(ranks: Ranks) -> None:
    watchdog = ranks.create(0)
    ranks.create(1)
    assert watchdog.reason("connection closed") == "another rank is gone (connection closed)"


@pytest.mark.medium
def test_a_rank_that_stops_by_itself_is_not_ended(ranks: Ranks) -> None:
    first, second = ranks.create(0), ranks.create(1)
    second.announce_failure("ValueError: the label is 7")
    first.reason("connection closed")
    assert not ranks.has_ended.wait(2 * GRACE_SECONDS)


@pytest.mark.medium
def test_a_rank_that_cannot_stop_by_itself_is_ended(ranks: Ranks, capsys: pytest.CaptureFixture[str]) -> None:
    ranks.create(0)
    ranks.create(1).announce_failure("ValueError: the label is 7")
    ranks.wait_for_end()
    assert "oomph: rank 0 stops: rank 1: ValueError: the label is 7" in capsys.readouterr().err


@pytest.mark.medium
def test_a_rank_that_ended_normally_ends_only_ranks_that_wait_for_it(
    ranks: Ranks, capsys: pytest.CaptureFixture[str]
) -> None:
    watchdog = ranks.create(0)
    ranks.create(1).close()
    assert not ranks.has_ended.wait(TIMEOUT_SECONDS + GRACE_SECONDS + 0.2)
    watchdog.busy = True
    ranks.wait_for_end()
    assert "rank 1 ended before this one" in capsys.readouterr().err


class BrokenStore:
    """A store with a host that is gone."""

    def set(self, key: str, value: str) -> None:
        """Accept everything."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        raise RuntimeError(f"Connection reset by peer, keys {keys}")


@pytest.mark.medium
@pytest.mark.parametrize("busy", [False, True])
def test_a_lost_store_ends_only_ranks_that_wait(ranks: Ranks, *, busy: bool) -> None:
    ranks.store = BrokenStore()
    watchdog = ranks.create(1, is_started=False)
    watchdog.busy = busy
    watchdog.start()
    wait_until(lambda: watchdog._reason is not None)
    assert ranks.has_ended.wait(4 * GRACE_SECONDS if busy else 2 * GRACE_SECONDS) is busy
    assert watchdog.reason("") == "rank 0, which hosts the store, is gone"


def test_closing_twice_is_allowed(ranks: Ranks) -> None:
    watchdog = ranks.create(0)
    watchdog.close()
    watchdog.close()
    assert not watchdog._thread.is_alive()
