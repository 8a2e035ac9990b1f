from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from oomph.data import ImageFlag, PixelConversion, UnreadableImage, Window, decode, decode_windows, read_header
from oomph.errors import UsageError

from ..images import overwrite_size, psnr, scene

Array = NDArray[np.uint8]
Save = Callable[[Path, Array], None]
WINDOW = Window(101, 53, 200, 181)


def save_as(mode: str = "RGB", **options: object) -> Save:
    return lambda path, pixels: Image.fromarray(pixels).convert(mode).save(path, **options)  # type: ignore[arg-type]


LOSSLESS: dict[str, Save] = {
    "a.png": save_as(),
    "alpha.png": save_as("RGBA"),
    "a.bmp": save_as(),
    "lossless.webp": save_as(lossless=True),
    "raw.tif": save_as(),
    "deflate.tif": save_as(compression="tiff_deflate"),
    "lzw.tif": save_as(compression="tiff_lzw"),
    "packbits.tif": save_as(compression="packbits"),
    "a.npy": np.save,
    "planar.npy": lambda path, pixels: np.save(path, np.moveaxis(pixels, 2, 0).copy()),
    "fortran.npy": lambda path, pixels: np.save(path, np.asfortranarray(pixels)),
    "short.npy": lambda path, pixels: np.save(path, pixels.astype(np.uint16) * 257),
    "big-endian.npy": lambda path, pixels: np.save(path, (pixels.astype(np.uint16) * 257).astype(">u2")),
    "float.npy": lambda path, pixels: np.save(path, ((pixels + 0.5) / 255).astype(np.float32)),
}


@pytest.mark.medium
@pytest.mark.usefixtures("decoders")
@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_formats_keep_every_pixel(tmp_path: Path, name: str) -> None:
    path, pixels = tmp_path / name, scene()
    LOSSLESS[name](path, pixels)
    whole, part = decode_windows(path, [Window(0, 0, 320, 240), WINDOW])
    assert np.array_equal(whole.pixels, pixels)
    assert np.array_equal(part.pixels, pixels[53:181, 101:200])
    base: Any = part.pixels if part.pixels.base is None else part.pixels.base
    assert memoryview(base).nbytes == part.pixels.nbytes  # a copy: a view would keep the whole image in memory
    expected = Image.fromarray(pixels).resize((100, 75), Image.Resampling.LANCZOS)
    assert psnr(decode(path, (100, 100)).pixels, np.asarray(expected)) > 38


LOSSY: dict[str, Save] = {
    "a.jpg": save_as(quality=95, subsampling=0),
    "subsampled.jpg": save_as(quality=95),
    "progressive.jpg": save_as(quality=95, progressive=True),
    "restart.jpg": save_as(quality=95, restart_marker_rows=1),
    "often.jpg": save_as(quality=95, restart_marker_blocks=3),
    "seldom.jpg": save_as(quality=95, restart_marker_rows=4),
    "cmyk.jpg": save_as("CMYK", quality=95),
    "a.webp": save_as(quality=95),
    "jpeg.tif": save_as(compression="jpeg", quality=95),
}


@pytest.mark.medium
@pytest.mark.usefixtures("decoders")
@pytest.mark.parametrize("name", LOSSY)
def test_lossy_formats_match_a_full_decoding(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    LOSSY[name](path, scene())
    with Image.open(path) as image:
        full = np.asarray(image.convert("RGB"))
    (part,) = decode_windows(path, [WINDOW])
    assert np.abs(part.pixels.astype(int) - full[53:181, 101:200]).max() <= 2
    expected = Image.fromarray(full).resize((100, 75), Image.Resampling.LANCZOS)
    assert psnr(decode(path, (100, 100)).pixels, np.asarray(expected)) > 38


@pytest.mark.parametrize(
    ("name", "mode"), [("gray.jpg", "L"), ("gray.png", "L"), ("bits.png", "1"), ("bits.tif", "1"), ("alpha.png", "LA")]
)
def test_gray_images_have_three_equal_bands(tmp_path: Path, name: str, mode: str) -> None:
    path = tmp_path / name
    Image.fromarray(scene()).convert(mode).save(path)
    pixels = decode(path, (320, 240)).pixels
    assert pixels.shape == (240, 320, 3)
    assert np.array_equal(pixels[..., 0], pixels[..., 2])


@pytest.mark.medium
@pytest.mark.parametrize("name", ["a.gif", "palette.png", "palette.tif"])
def test_palettes_become_rgb(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    Image.fromarray(scene()).convert("P", palette=Image.Palette.ADAPTIVE).save(path)
    with Image.open(path) as image:
        full = np.asarray(image.convert("RGB"))
    assert np.array_equal(decode(path, (320, 240)).pixels, full)


def test_16_bits_become_8(tmp_path: Path) -> None:
    samples = np.arange(256, dtype=np.uint16).repeat(4).reshape(16, 64) * 257
    for name in ("a.png", "a.tif"):
        Image.fromarray(samples).save(tmp_path / name)
        assert np.array_equal(decode(tmp_path / name, (64, 16)).pixels[..., 0], samples >> 8)
    stretched = decode(tmp_path / "a.png", (64, 16), conversion=PixelConversion(levels=(0, 25700))).pixels[..., 0]
    assert stretched.max() == 255
    assert stretched[0, 4 * 8] == 20


def test_bands_can_be_selected(tmp_path: Path) -> None:
    bands = np.stack([np.full((8, 9), 10 * band, np.uint8) for band in range(7)], 2)
    np.save(tmp_path / "a.npy", bands)
    assert decode(tmp_path / "a.npy", (9, 8)).pixels[0, 0].tolist() == [0, 10, 20]
    selected = decode(tmp_path / "a.npy", (9, 8), conversion=PixelConversion(bands=(6, 3, 1))).pixels
    assert selected[0, 0].tolist() == [60, 30, 10]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_and_windows_follow_the_exif_orientation(tmp_path: Path, orientation: int) -> None:
    path, exif = tmp_path / "rotated.jpg", Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(scene()).save(path, quality=95, exif=exif)
    with Image.open(path) as image:
        oriented = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    window = Window(21, 53, 200, 181)
    whole, part = decode_windows(path, [Window(0, 0, oriented.shape[1], oriented.shape[0]), window])
    assert np.array_equal(whole.pixels, oriented)
    assert np.array_equal(part.pixels, oriented[53:181, 21:200])
    small = decode(path, (160, 160))
    assert small.pixels.shape[:2] == tuple(side // 2 for side in oriented.shape[:2])
    assert (small.width, small.height) == (oriented.shape[1], oriented.shape[0])


@pytest.mark.medium
def test_first_frame_of_an_animation_is_used(tmp_path: Path) -> None:
    first = Image.fromarray(scene())
    for name in ("a.gif", "a.png", "a.webp"):
        first.save(tmp_path / name, save_all=True, append_images=[ImageOps.invert(first)])
        assert psnr(decode(tmp_path / name, (320, 240)).pixels, np.asarray(first)) > 20


def test_window_outside_the_image_is_rejected(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    with pytest.raises(UsageError, match="not inside the 320×240 image"):
        decode_windows(tmp_path / "a.png", [Window(300, 0, 321, 10)])


def test_damaged_pixels_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(scene()).save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 50] = b"\0" * 50
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableImage, match="can't be decoded"):
        decode(path, (32, 32))


def test_header_larger_than_the_image_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(scene()).save(path)
    overwrite_size(path, 320, 4000)
    with pytest.raises(UnreadableImage):
        decode(path, (32, 32))


def test_index_that_hides_a_progressive_jpeg_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(scene()).save(path, progressive=True)
    wrong = dataclasses.replace(read_header(str(path)), coefficient_bytes=0, flags=ImageFlag(0))
    with pytest.raises(UnreadableImage, match="needs more memory now"):
        decode(path, (32, 32), wrong)
