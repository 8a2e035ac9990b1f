from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import oomph
from oomph.detect import InferenceConfig, NmsConfig, detect_objects, save_weights, yolov5
from oomph.units import MIB


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_weights(tmp_path / "n.pt", yolov5("n", 1), ("thing",), {})
    return tmp_path / "n.pt"


@pytest.mark.medium
def test_unreadable_images_are_skipped_with_the_reason(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(tmp_path / "good.png")
    config = InferenceConfig(weights, 64, "cpu", nms=NmsConfig(0.001, 0.5))
    result = detect_objects(config, [tmp_path / "broken.png", tmp_path / "good.png"], tmp_path / "out")
    assert [image.image for image in result.images] == [str(tmp_path / "good.png")]
    assert [path for path, _ in result.skipped] == [str(tmp_path / "broken.png")]
    assert result.hint is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".oomph-outputs.json",
        "good.jpg",
        "good.txt",
    ]
    with pytest.raises(oomph.UsageError, match=r"no image of .* can be read"):
        detect_objects(config, tmp_path / "broken.png", tmp_path / "more")


def test_tiles_that_are_too_small_are_rejected_before_anything_is_written(weights: Path) -> None:
    with pytest.raises(oomph.UsageError, match="tiles of 16 pixels are too small"):
        InferenceConfig(weights, tiles=16)


HUGE = 20_000


@pytest.mark.large
@pytest.mark.large
def test_a_huge_image_needs_little_memory(weights: Path, tmp_path: Path) -> None:
    """400 megapixels (1.1 GiB) are searched and drawn with less than 320 MiB more than a small image needs."""
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    tile = np.random.default_rng(0).integers(0, 255, (512, 512, 3), np.uint8)
    columns = -(-HUGE // 512)
    tifffile.imwrite(
        tmp_path / "huge.tif",
        (tile if number % 31 == 0 else None for number in range(columns * columns)),
        shape=(HUGE, HUGE, 3),
        dtype=np.uint8,
        tile=(512, 512),
        photometric="rgb",
        compression="deflate",
    )
    code = f"""
from pathlib import Path
import numpy as np, torch
from PIL import Image
torch.set_num_threads(1)
from oomph.detect import InferenceConfig, NmsConfig, detect_objects
from oomph.machine import peak_rss_bytes
folder = Path({str(tmp_path)!r})
config = InferenceConfig(Path({str(weights)!r}), 64, "cpu", 1250, NmsConfig(0.3, 0.5))
Image.fromarray(np.zeros((1300, 1300, 3), np.uint8)).save(folder / "small.png")
detect_objects(config, folder / "small.png", folder / "out")
before = peak_rss_bytes()
result = detect_objects(config, folder / "huge.tif", folder / "out")
assert len(result.images) == 1 and not result.skipped
print(peak_rss_bytes() - before)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) < 320 * MIB
    with Image.open(tmp_path / "out" / "huge.jpg") as image:
        assert 1024 <= max(image.size) <= 2560
