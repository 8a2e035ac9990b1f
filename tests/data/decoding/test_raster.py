"""TIFF layouts that Pillow can't write, written by tifffile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oomph.data import ImageFlag, PixelConversion, Window, decode, decode_cost, decode_windows, read_header
from oomph.data.decoding import open_raster

from ..images import psnr, scene

tifffile = pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")

PIXELS = scene(420, 300)
SHORT = PIXELS.astype(np.uint16) * 257
FLOAT = ((PIXELS + 0.5) / 255).astype(np.float32)
EIGHT_BANDS = np.concatenate([SHORT, SHORT, SHORT[..., :2]], 2)
RGB: dict[str, Any] = {"photometric": "rgb"}
LAYOUTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "tiles": (PIXELS, {**RGB, "tile": (128, 128), "compression": "deflate", "predictor": True}),
    "tiles not square": (PIXELS, {**RGB, "tile": (64, 128), "compression": "zstd"}),
    "raw tiles": (PIXELS, {**RGB, "tile": (128, 128)}),
    "BigTIFF, 16 bit, LZW": (SHORT, {**RGB, "tile": (128, 128), "compression": "lzw", "bigtiff": True}),
    "planes": (np.moveaxis(PIXELS, 2, 0), {**RGB, "planarconfig": "separate", "tile": (64, 64), "compression": "zstd"}),
    "planes, raw strips": (np.moveaxis(PIXELS, 2, 0), {**RGB, "planarconfig": "separate", "rowsperstrip": 9}),
    "big-endian strips": (
        SHORT,
        {**RGB, "byteorder": ">", "rowsperstrip": 7, "compression": "deflate", "predictor": True},
    ),
    "big-endian raw": (SHORT, {**RGB, "byteorder": ">", "rowsperstrip": 7}),
    "packbits": (PIXELS, {**RGB, "rowsperstrip": 16, "compression": "packbits"}),
    "float": (FLOAT, {**RGB, "tile": (128, 128), "compression": "deflate", "predictor": 3}),
    "eight bands": (EIGHT_BANDS, {"photometric": "minisblack", "tile": (64, 64), "planarconfig": "contig"}),
}


@pytest.mark.medium
@pytest.mark.parametrize("layout", LAYOUTS)
def test_windows_and_whole_images_of_every_layout(tmp_path: Path, layout: str) -> None:
    array, options = LAYOUTS[layout]
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, array, **options)
    whole, part = decode_windows(path, [Window(0, 0, 420, 300), Window(101, 53, 300, 181)])
    assert np.array_equal(whole.pixels, PIXELS)
    assert np.array_equal(part.pixels, PIXELS[53:181, 101:300])
    expected = Image.fromarray(PIXELS).resize((140, 100), Image.Resampling.LANCZOS)
    assert psnr(decode(path, (140, 140)).pixels, np.asarray(expected)) > 38


def test_jpeg_tiles_match_tifffile(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PIXELS, tile=(128, 128), compression="jpeg", photometric="rgb")
    (whole,) = decode_windows(path, [Window(0, 0, 420, 300)])
    assert np.abs(whole.pixels.astype(int) - tifffile.imread(path)).max() <= 3


def test_white_is_zero_is_inverted(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PIXELS[..., 0], photometric="miniswhite", tile=(64, 64))
    assert ImageFlag.INVERTED in read_header(str(path)).flags
    (whole,) = decode_windows(path, [Window(0, 0, 420, 300)])
    assert np.array_equal(whole.pixels[..., 1], 255 - PIXELS[..., 0])


def test_selected_bands_of_a_planar_tiff(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    planes = np.stack([np.full((64, 80), 20 * band, np.uint8) for band in range(6)])
    tifffile.imwrite(path, planes, photometric="minisblack", planarconfig="separate", tile=(32, 32))
    selected = decode(path, (80, 64), conversion=PixelConversion(bands=(5, 0, 3))).pixels
    assert selected[10, 10].tolist() == [100, 0, 60]


@pytest.mark.medium
def test_smallest_sufficient_overview_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cog.tif"
    large = np.tile(PIXELS, (6, 6, 1))
    with tifffile.TiffWriter(path) as writer:
        for factor in (1, 2, 4):
            overview = np.asarray(Image.fromarray(large).reduce(factor))
            options = {"tile": (128, 128), "compression": "deflate", "subfiletype": int(factor > 1)}
            writer.write(overview, photometric="rgb", **options)
    header = read_header(str(path))
    raster = open_raster(str(path), header, (280, 200))
    assert raster is not None
    assert (raster.width, raster.height) == (630, 450)
    expected = Image.fromarray(large).resize((280, 200), Image.Resampling.LANCZOS)
    assert psnr(decode(path, (280, 280)).pixels, np.asarray(expected)) > 34
    assert decode_cost(header, (280, 200)) < large.nbytes


def test_missing_tiles_of_a_sparse_tiff_are_black(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    array = np.zeros((256, 256, 3), np.uint8)
    array[:128, :128] = 77
    tiles = (array[:128, :128] if number == 0 else None for number in range(4))
    options = {"tile": (128, 128), "photometric": "rgb", "compression": "deflate"}
    tifffile.imwrite(path, tiles, shape=array.shape, dtype=array.dtype, **options)
    with tifffile.TiffFile(path) as written:
        assert 0 in written.pages[0].databytecounts
    (whole,) = decode_windows(path, [Window(0, 0, 256, 256)])
    assert np.array_equal(whole.pixels, array)
