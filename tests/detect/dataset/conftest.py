from __future__ import annotations

import pytest

from oomph.detect.dataset import _pixels


@pytest.fixture(params=["opencv", "pillow"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with both implementations of the pixel operations."""
    name: str = request.param
    if name == "opencv":
        pytest.importorskip("cv2")
    else:
        monkeypatch.setattr(_pixels, "opencv", lambda: None)
    return name
