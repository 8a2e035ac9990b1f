"""TIFFs that Pillow can't write, written by tifffile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oomph.data import Flag, PixelConversion, Window, decode, decode_cost, decode_windows, read_header
from oomph.data.decoding import raster_of
from oomph.data.decoding._raster import Tiff

from .pictures import psnr, scene

tifffile = pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")

PIXELS = scene(420, 300)
SHORT = PIXELS.astype(np.uint16) * 257
RGB: dict[str, Any] = {"photometric": "rgb"}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
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
    "fractions": ((PIXELS + 0.5) / 255, {**RGB, "tile": (128, 128), "compression": "deflate", "predictor": 3}),
    "eight bands": (np.concatenate([SHORT, SHORT, SHORT[..., :2]], 2), {"photometric": "minisblack", "tile": (64, 64)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_and_whole_images_of_every_layout(tmp_path: Path, kind: str) -> None:
    array, options = KINDS[kind]
    if kind == "fractions":
        array = array.astype(np.float32)
    if kind == "eight bands":
        options = {**options, "planarconfig": "contig"}
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, array, **options)
    whole, part = decode_windows(path, [Window(0, 0, 420, 300), Window(101, 53, 300, 181)])
    assert np.array_equal(whole.pixels, PIXELS)
    assert np.array_equal(part.pixels, PIXELS[53:181, 101:300])
    wanted = Image.fromarray(PIXELS).resize((140, 100), Image.Resampling.LANCZOS)
    assert psnr(decode(path, (140, 140)).pixels, np.asarray(wanted)) > 38


def test_jpeg_tiles_are_what_tifffile_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PIXELS, tile=(128, 128), compression="jpeg", photometric="rgb")
    (whole,) = decode_windows(path, [Window(0, 0, 420, 300)])
    assert np.abs(whole.pixels.astype(int) - tifffile.imread(path)).max() <= 3


def test_white_is_zero_is_turned_round(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PIXELS[..., 0], photometric="miniswhite", tile=(64, 64))
    assert Flag.INVERTED in read_header(str(path)).flags
    (whole,) = decode_windows(path, [Window(0, 0, 420, 300)])
    assert np.array_equal(whole.pixels[..., 1], 255 - PIXELS[..., 0])


def test_chosen_bands_are_read_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    planes = np.stack([np.full((64, 80), 20 * band, np.uint8) for band in range(6)])
    tifffile.imwrite(path, planes, photometric="minisblack", planarconfig="separate", tile=(32, 32))
    assert decode(path, (80, 64), pixels=PixelConversion(bands=(5, 0, 3))).pixels[10, 10].tolist() == [100, 0, 60]


def test_the_smallest_overview_that_will_do_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cog.tif"
    big = np.tile(PIXELS, (6, 6, 1))
    with tifffile.TiffWriter(path) as writer:
        for step in (1, 2, 4):
            small = np.asarray(Image.fromarray(big).reduce(step))
            writer.write(small, tile=(128, 128), compression="deflate", subfiletype=int(step > 1), photometric="rgb")
    header = read_header(str(path))
    raster = raster_of(str(path), header, (280, 200))
    assert isinstance(raster, Tiff)
    assert (raster.width, raster.height) == (630, 450)
    wanted = Image.fromarray(big).resize((280, 200), Image.Resampling.LANCZOS)
    assert psnr(decode(path, (280, 280)).pixels, np.asarray(wanted)) > 34
    assert decode_cost(header, (280, 200)) < big.nbytes


def test_a_sparse_tile_is_empty(tmp_path: Path) -> None:
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
