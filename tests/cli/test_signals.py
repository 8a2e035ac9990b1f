from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from oomph import RankLost
from oomph.cli._signals import exit_on_sigterm, report_lost_rank


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def slow_clean_up() -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(KeyError):
            try:
                raise KeyError
            finally:
                terminate()


@pytest.mark.parametrize("context", [exit_on_sigterm, report_lost_rank])
def test_sigterm_ends_a_command_with_the_code_of_shells(context: type[contextlib.AbstractContextManager[None]]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end, context():
        terminate()
    assert end.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_rank_that_has_lost_another_one_outlives_the_launchers_signal() -> None:
    with pytest.raises(RankLost, match="rank 1"), report_lost_rank(), slow_clean_up():
        raise RankLost("rank 1 is gone", "check its output")
    terminate()  # the reason may not have been printed yet
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_sigterm_ends_a_command_that_fails_with_another_error() -> None:
    with pytest.raises(SystemExit), report_lost_rank(), slow_clean_up():
        raise ValueError
