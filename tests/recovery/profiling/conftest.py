from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def with_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Keep the warnings that other tests of the guard leave out."""
    # Not `set_level`: it restores the level only after the other tests' fixture has, which is that fixture's own.
    with caplog.at_level("WARNING", logger="oomph"):
        yield
