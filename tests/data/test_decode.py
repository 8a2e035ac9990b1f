from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from oomph.data import Flag, Letterbox, PixelConversion, UnreadableImage, Window, decode, decode_windows, read_header
from oomph.data.decoding import _blocks, _turbo, decode_cost, decode_windows_cost, fit_size, paste_letterbox
from oomph.data.decoding._rows import can_cut, cut_rows
from oomph.errors import UsageError

from .pictures import claim_size, psnr, scene

Array = NDArray[np.uint8]
WINDOW = Window(101, 53, 200, 181)


@pytest.fixture(params=["with codecs", "Pillow alone"])
def libraries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both with the optional packages, where they are installed, and without."""
    for asked in (_turbo.turbo, _blocks.codecs):
        asked.cache_clear()
    if request.param == "Pillow alone":
        for name in ("simplejpeg", "imagecodecs"):
            monkeypatch.setitem(sys.modules, name, None)
    yield request.param
    for asked in (_turbo.turbo, _blocks.codecs):
        asked.cache_clear()


def save_npy(path: Path, pixels: Array) -> None:
    np.save(path, pixels)


def pillow(mode: str = "RGB", **options: object) -> Callable[[Path, Array], None]:
    return lambda path, pixels: Image.fromarray(pixels).convert(mode).save(path, **options)  # type: ignore[arg-type]


EXACT: dict[str, Callable[[Path, Array], None]] = {
    "a.png": pillow(),
    "alpha.png": pillow("RGBA"),
    "a.bmp": pillow(),
    "lossless.webp": pillow(lossless=True),
    "raw.tif": pillow(),
    "deflate.tif": pillow(compression="tiff_deflate"),
    "lzw.tif": pillow(compression="tiff_lzw"),
    "packbits.tif": pillow(compression="packbits"),
    "a.npy": save_npy,
    "planar.npy": lambda path, pixels: np.save(path, np.moveaxis(pixels, 2, 0).copy()),
    "fortran.npy": lambda path, pixels: np.save(path, np.asfortranarray(pixels)),
    "short.npy": lambda path, pixels: np.save(path, pixels.astype(np.uint16) * 257),
    "big-endian.npy": lambda path, pixels: np.save(path, (pixels.astype(np.uint16) * 257).astype(">u2")),
    "fraction.npy": lambda path, pixels: np.save(path, ((pixels + 0.5) / 255).astype(np.float32)),
}


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("name", EXACT)
def test_lossless_formats_give_every_pixel_and_shrink_well(tmp_path: Path, name: str) -> None:
    path, pixels = tmp_path / name, scene()
    EXACT[name](path, pixels)
    whole, part = decode_windows(path, [Window(0, 0, 320, 240), WINDOW])
    assert np.array_equal(whole.pixels, pixels)
    assert np.array_equal(part.pixels, pixels[53:181, 101:200])
    held: Any = part.pixels if part.pixels.base is None else part.pixels.base
    assert memoryview(held).nbytes == part.pixels.nbytes  # a copy: a view would keep the whole image
    small = decode(path, (100, 100))
    wanted = Image.fromarray(pixels).resize((100, 75), Image.Resampling.LANCZOS)
    assert psnr(small.pixels, np.asarray(wanted)) > 38


LOSSY: dict[str, Callable[[Path, Array], None]] = {
    "a.jpg": pillow(quality=95, subsampling=0),
    "half.jpg": pillow(quality=95),
    "progressive.jpg": pillow(quality=95, progressive=True),
    "restart.jpg": pillow(quality=95, restart_marker_rows=1),
    "often.jpg": pillow(quality=95, restart_marker_blocks=3),
    "seldom.jpg": pillow(quality=95, restart_marker_rows=4),
    "cmyk.jpg": pillow("CMYK", quality=95),
    "a.webp": pillow(quality=95),
    "jpeg.tif": pillow(compression="jpeg", quality=95),
}


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("name", LOSSY)
def test_lossy_formats_give_what_a_full_decoding_gives(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    LOSSY[name](path, scene())
    with Image.open(path) as image:
        full = np.asarray(image.convert("RGB"))
    (part,) = decode_windows(path, [WINDOW])
    assert np.abs(part.pixels.astype(int) - full[53:181, 101:200]).max() <= 2
    wanted = Image.fromarray(full).resize((100, 75), Image.Resampling.LANCZOS)
    assert psnr(decode(path, (100, 100)).pixels, np.asarray(wanted)) > 38


@pytest.mark.parametrize(
    ("name", "mode"), [("grey.jpg", "L"), ("grey.png", "L"), ("bits.png", "1"), ("bits.tif", "1"), ("alpha.png", "LA")]
)
def test_grey_comes_in_three_equal_bands(tmp_path: Path, name: str, mode: str) -> None:
    path = tmp_path / name
    Image.fromarray(scene()).convert(mode).save(path)
    pixels = decode(path, (320, 240)).pixels
    assert pixels.shape == (240, 320, 3)
    assert np.array_equal(pixels[..., 0], pixels[..., 2])


@pytest.mark.parametrize("name", ["a.gif", "palette.png", "palette.tif"])
def test_palettes_become_colours(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    Image.fromarray(scene()).convert("P", palette=Image.Palette.ADAPTIVE).save(path)
    with Image.open(path) as image:
        full = np.asarray(image.convert("RGB"))
    assert np.array_equal(decode(path, (320, 240)).pixels, full)


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    samples = np.arange(256, dtype=np.uint16).repeat(4).reshape(16, 64) * 257
    for name in ("a.png", "a.tif"):
        Image.fromarray(samples).save(tmp_path / name)
        assert np.array_equal(decode(tmp_path / name, (64, 16)).pixels[..., 0], samples >> 8)
    stretched = decode(tmp_path / "a.png", (64, 16), pixels=PixelConversion(levels=(0, 25700))).pixels[..., 0]
    assert stretched.max() == 255
    assert stretched[0, 4 * 8] == 20


def test_bands_can_be_chosen(tmp_path: Path) -> None:
    many = np.stack([np.full((8, 9), 10 * band, np.uint8) for band in range(7)], 2)
    np.save(tmp_path / "many.npy", many)
    assert decode(tmp_path / "many.npy", (9, 8)).pixels[0, 0].tolist() == [0, 10, 20]
    chosen = decode(tmp_path / "many.npy", (9, 8), pixels=PixelConversion(bands=(6, 3, 1))).pixels
    assert chosen[0, 0].tolist() == [60, 30, 10]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_and_windows_are_turned_as_exif_says(tmp_path: Path, orientation: int) -> None:
    path, exif = tmp_path / "turned.jpg", Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(scene()).save(path, quality=95, exif=exif)
    with Image.open(path) as image:
        seen = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    window = Window(21, 53, 200, 181)
    whole, part = decode_windows(path, [Window(0, 0, seen.shape[1], seen.shape[0]), window])
    assert np.array_equal(whole.pixels, seen)
    assert np.array_equal(part.pixels, seen[53:181, 21:200])
    small = decode(path, (160, 160))
    assert small.pixels.shape[:2] == tuple(side // 2 for side in seen.shape[:2])
    assert (small.width, small.height) == (seen.shape[1], seen.shape[0])


def test_the_first_frame_of_an_animation_is_the_image(tmp_path: Path) -> None:
    first = Image.fromarray(scene())
    for name in ("a.gif", "a.png", "a.webp"):
        first.save(tmp_path / name, save_all=True, append_images=[ImageOps.invert(first)])
        assert psnr(decode(tmp_path / name, (320, 240)).pixels, np.asarray(first)) > 20


def test_restart_markers_let_a_window_be_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oomph.data.decoding import _decode

    path = tmp_path / "r.jpg"
    Image.fromarray(scene(640, 960)).save(path, restart_marker_rows=1)
    header = read_header(str(path))
    assert can_cut(header)
    monkeypatch.setattr(_decode, "decode_file", lambda *_, **__: pytest.fail("the whole image was decoded"))
    (part,) = decode_windows(path, [Window(10, 700, 50, 740)], header)
    with Image.open(path) as image:
        assert np.array_equal(part.pixels, np.asarray(image)[700:740, 10:50])


def test_a_restart_marker_that_is_missing_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "r.jpg"
    Image.fromarray(scene(640, 960)).save(path, restart_marker_rows=1)
    path.write_bytes(path.read_bytes().replace(b"\xff\xd4", b"", 1))
    with pytest.raises(UnreadableImage, match="restart markers are missing"):
        cut_rows(str(path), read_header(str(path)), 0, 16)


def test_a_window_outside_of_the_image_is_one_sentence(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    with pytest.raises(UsageError, match="not inside an image of 320×240"):
        decode_windows(tmp_path / "a.png", [Window(300, 0, 321, 10)])


def test_a_picture_that_is_damaged_inside_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(scene()).save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 50] = b"\0" * 50
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableImage, match="can't be decoded"):
        decode(path, (32, 32))


def test_a_header_that_claims_more_than_the_picture_has_is_broken_not_grey(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(scene()).save(path)
    claim_size(path, 320, 4000)
    with pytest.raises(UnreadableImage):
        decode(path, (32, 32))


def test_an_index_that_hides_a_progressive_jpeg_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(scene()).save(path, progressive=True)
    lie = dataclasses.replace(read_header(str(path)), coefficients=0, flags=Flag(0))
    with pytest.raises(UnreadableImage, match="takes more bytes now"):
        decode(path, (32, 32), lie)


@pytest.mark.parametrize("size", [(1, 1000), (1000, 1), (3, 2), (641, 480)])
def test_any_shape_fits_its_box(size: tuple[int, int]) -> None:
    wide, tall = fit_size(size, (640, 320))
    assert 1 <= wide <= 640
    assert 1 <= tall <= 320
    assert wide == 640 or tall == 320


def test_a_letterbox_maps_boxes_there_and_back() -> None:
    canvas = np.zeros((64, 100, 3), np.uint8)
    spot = paste_letterbox(np.full((40, 80, 3), 7, np.uint8), Window(10, 20, 170, 100), canvas)
    assert spot == Letterbox(Window(10, 20, 170, 100), (80, 40), 10, 12)
    assert canvas[12:52, 10:90].min() == canvas[12:52, 10:90].max() == 7
    assert (canvas == 7).sum() == 40 * 80 * 3
    assert set(np.unique(canvas).tolist()) == {7, 114}
    boxes = np.array([[10.0, 20.0, 170.0, 100.0], [50.0, 40.0, 60.0, 45.0]])
    assert spot.to_canvas(boxes)[0].tolist() == [10, 12, 90, 52]
    assert np.allclose(spot.to_image(spot.to_canvas(boxes)), boxes)


def peak_over(work: Callable[[], object]) -> int:
    """Resident bytes that something takes beyond what there was, sampled closely."""
    process, running, highest = psutil.Process(), True, 0

    def watch() -> None:
        nonlocal highest
        while running:
            highest = max(highest, process.memory_info().rss)

    work()  # libraries load now
    before = process.memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    running = False
    watcher.join()
    return highest - before


BIG = {
    "a.jpg": pillow(quality=90),
    "progressive.jpg": pillow(quality=90, progressive=True),
    "a.png": pillow(compress_level=1),
    "alpha.png": pillow("RGBA", compress_level=1),
    "palette.png": pillow("P", compress_level=1),
    "a.webp": pillow(quality=60, method=0),
    "a.bmp": pillow(),
    "a.gif": pillow("P"),
    "raw.tif": pillow(),
    "deflate.tif": pillow(compression="tiff_deflate"),
    "a.npy": save_npy,
}


@pytest.mark.parametrize("name", BIG)
def test_decoding_takes_no_more_than_its_header_says(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    BIG[name](path, np.tile(scene(500, 300), (5, 4, 1)))
    header = read_header(str(path))
    slack = 3_000_000  # the allocator's own, and Python's
    assert peak_over(lambda: decode(path, (320, 320), header)) <= decode_cost(header, (320, 240)) + slack
    windows = [Window(100, 100, 600, 600), Window(1400, 900, 1900, 1400)]
    assert peak_over(lambda: decode_windows(path, windows, header)) <= decode_windows_cost(header, windows) + slack
