from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def with_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Keep the warnings that other tests of the guard leave out."""
    caplog.set_level("WARNING", logger="oomph")
