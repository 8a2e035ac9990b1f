from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oomph.data import UnreadableImage, Window, decode_windows, has_random_access, read_header
from oomph.data.decoding import _decode
from oomph.data.decoding._jpeg_rows import cut_rows

from ..images import scene


@pytest.fixture
def jpeg(tmp_path: Path) -> Path:
    path = tmp_path / "restart.jpg"
    Image.fromarray(scene(640, 960)).save(path, restart_marker_rows=1)
    return path


def test_window_is_decoded_without_the_rest(jpeg: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = read_header(str(jpeg))
    assert has_random_access(header)
    monkeypatch.setattr(_decode, "decode_file", lambda *_, **__: pytest.fail("the whole image was decoded"))
    (part,) = decode_windows(jpeg, [Window(10, 700, 50, 740)], header)
    with Image.open(jpeg) as image:
        assert np.array_equal(part.pixels, np.asarray(image)[700:740, 10:50])


def test_missing_restart_marker_is_detected(jpeg: Path) -> None:
    jpeg.write_bytes(jpeg.read_bytes().replace(b"\xff\xd4", b"", 1))
    with pytest.raises(UnreadableImage, match="restart markers are missing"):
        cut_rows(str(jpeg), read_header(str(jpeg)), 0, 16)
