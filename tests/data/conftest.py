from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from oomph.data.decoding import load_imagecodecs, load_simplejpeg


@pytest.fixture(params=["with optional decoders", "Pillow only"])
def decoders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a test with the optional decoders, if they are installed, and without them."""
    for load in (load_simplejpeg, load_imagecodecs):
        load.cache_clear()
    if request.param == "Pillow only":
        for name in ("simplejpeg", "imagecodecs"):
            monkeypatch.setitem(sys.modules, name, None)
    yield request.param
    for load in (load_simplejpeg, load_imagecodecs):
        load.cache_clear()
