from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from oomph.data import ImageFlag, Window, decode_windows, has_random_access, read_header, transcode
from oomph.data.decoding import open_raster
from oomph.errors import UsageError

from .images import psnr, scene


def test_strips_become_tiles_without_loss(tmp_path: Path) -> None:
    pixels = scene(700, 600)
    Image.fromarray(pixels).save(tmp_path / "strip.tif", compression="tiff_deflate")
    copy = transcode(tmp_path / "strip.tif", tmp_path / "tiled.tif")
    header = read_header(str(copy))
    assert (header.block_width, header.block_height) == (256, 256)
    window = Window(200, 150, 555, 599)
    assert np.array_equal(decode_windows(copy, [window])[0].pixels, pixels[150:599, 200:555])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(300 * 400, dtype=np.uint16).reshape(300, 400),
        np.arange(300 * 40 * 7, dtype=np.int32).reshape(300, 40, 7),
        np.linspace(0, 1, 300 * 280 * 2, dtype=np.float32).reshape(300, 280, 2),
    ],
    ids=["uint16", "int32 with 7 bands", "float32"],
)
def test_every_dtype_and_number_of_bands_is_kept(tmp_path: Path, array: NDArray[np.generic]) -> None:
    np.save(tmp_path / "a.npy", array)
    copy = transcode(tmp_path / "a.npy", tmp_path / "a.tif")
    header = read_header(str(copy))
    raster = open_raster(str(copy), header)
    assert raster is not None
    whole = raster.read(Window(0, 0, header.width, header.height), tuple(range(header.bands)))
    assert np.array_equal(whole.squeeze(), array)


def test_progressive_jpeg_becomes_a_baseline_jpeg_with_restart_markers(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(scene(640, 480)).save(tmp_path / "p.jpg", progressive=True, quality=90, exif=exif)
    copy = transcode(tmp_path / "p.jpg", tmp_path / "b.jpg")
    header = read_header(str(copy))
    assert not header.flags & ImageFlag.PROGRESSIVE
    assert has_random_access(header)
    assert header.orientation == 6
    with Image.open(tmp_path / "p.jpg") as before, Image.open(copy) as after:
        assert psnr(np.asarray(before), np.asarray(after)) > 45


def test_unsupported_format_is_rejected_without_leaving_a_file(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    with pytest.raises(UsageError, match="windows of a png file can't be decoded separately"):
        transcode(tmp_path / "a.png", tmp_path / "b.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
