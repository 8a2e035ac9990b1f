"""A shell with the extension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oomph.notebook import load_ipython_extension, unload_ipython_extension

from .shells import forget_last_error, new_shell


@pytest.fixture
def plain_shell() -> Iterator[Any]:
    """A shell without the extension."""
    yield new_shell()
    forget_last_error()


@pytest.fixture
def shell(plain_shell: Any) -> Iterator[Any]:
    """A shell with the extension."""
    load_ipython_extension(plain_shell)
    yield plain_shell
    unload_ipython_extension(plain_shell)
