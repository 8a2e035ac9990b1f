from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oomph.data import Header, ImageFlag, UnreadableImage, read_header

from ..images import scene

SIZE = (40, 30)


def picture(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(scene(*SIZE)).convert(mode)


def saved_header(folder: Path, name: str, image: Image.Image, **options: object) -> Header:
    path = folder / name
    image.save(path, **options)  # type: ignore[arg-type]
    return read_header(str(path))


@pytest.mark.parametrize(
    ("name", "mode", "bands", "dtype"),
    [
        ("a.jpg", "RGB", 3, "uint8"),
        ("a.jpg", "L", 1, "uint8"),
        ("a.jpg", "CMYK", 4, "uint8"),
        ("a.png", "RGB", 3, "uint8"),
        ("a.png", "LA", 2, "uint8"),
        ("a.png", "I;16", 1, "uint16"),
        ("a.webp", "RGB", 3, "uint8"),
        ("a.bmp", "RGB", 3, "uint8"),
        ("a.gif", "P", 1, "uint8"),
        ("a.tif", "RGB", 3, "uint8"),
        ("a.tif", "I;16", 1, "uint16"),
        ("a.tif", "F", 1, "float32"),
    ],
)
def test_size_bands_and_dtype_of_every_format(tmp_path: Path, name: str, mode: str, bands: int, dtype: str) -> None:
    image = picture("L").point(lambda v: v * 257, "I").convert("I;16") if mode == "I;16" else picture(mode)
    header = saved_header(tmp_path, name, image)
    assert (header.width, header.height, header.bands, header.dtype) == (*SIZE, bands, dtype)
    assert header.file_size == (tmp_path / name).stat().st_size


def test_flags_mark_unusual_files(tmp_path: Path) -> None:
    def flags(name: str, mode: str = "RGB", **options: object) -> ImageFlag:
        return saved_header(tmp_path, name, picture(mode), **options).flags

    second_frame = [picture().rotate(180)]
    assert flags("progressive.jpg", progressive=True) == ImageFlag.PROGRESSIVE
    assert ImageFlag.CMYK in flags("cmyk.jpg", "CMYK")
    assert flags("palette.png", "P") == ImageFlag.PALETTE
    assert flags("alpha.png", "RGBA") == ImageFlag.ALPHA
    for name in ("a.gif", "a.png", "a.webp"):
        assert ImageFlag.ANIMATED in flags(name, save_all=True, append_images=second_frame)
        assert ImageFlag.ANIMATED not in flags(name)
    assert ImageFlag.PACKED in flags("bits.tif", "1")
    assert flags("really.png", format="JPEG") == ImageFlag.MISNAMED


def test_progressive_jpeg_reports_its_coefficients(tmp_path: Path) -> None:
    baseline = saved_header(tmp_path, "b.jpg", picture(), subsampling=0)
    progressive = saved_header(tmp_path, "p.jpg", picture(), subsampling=0, progressive=True)
    assert baseline.coefficient_bytes == 0
    assert progressive.coefficient_bytes == 40 * 32 * 3 * 2  # whole blocks of 8×8, two bytes per sample


def test_restart_interval_and_mcu_size(tmp_path: Path) -> None:
    header = saved_header(tmp_path, "r.jpg", picture(), subsampling=2, restart_marker_rows=1)
    assert (header.restart_interval, header.block_width, header.block_height) == (3, 16, 16)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_rotates_the_display_size(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("a.jpg", "a.png", "a.webp"):
        header = saved_header(tmp_path, name, picture(), exif=exif)
        assert header.orientation == orientation
        assert header.display_size == (SIZE if orientation < 5 else SIZE[::-1])


def test_tiff_strips_and_compression(tmp_path: Path) -> None:
    header = saved_header(tmp_path, "s.tif", picture(), compression="tiff_deflate")
    assert (header.block_width, header.compression) == (40, 8)
    assert ImageFlag.TILED in header.flags


@pytest.mark.parametrize("shape", [(30, 40), (30, 40, 3), (3, 30, 40), (30, 40, 12)])
def test_npy_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(shape, np.uint16))
    header = read_header(str(path))
    bands = 1 if len(shape) == 2 else min(shape[0], shape[2])
    assert (header.width, header.height, header.bands, header.dtype) == (40, 30, bands, "uint16")


def test_small_npy_has_its_bands_last(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((4, 5, 3), np.uint8))
    assert read_header(str(path)).display_size == (5, 4)


def cut_off(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


UNUSABLE: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("empty.jpg", lambda data: b"", "empty: zero bytes"),
    ("stub.jpg", lambda data: data[:7], "truncated: only 7 bytes"),
    ("cut.jpg", cut_off, "truncated: the JPEG has no end-of-image marker"),
    ("cut.png", cut_off, "truncated: the PNG has no IEND chunk"),
    ("cut.webp", cut_off, "truncated: the WebP"),
    ("cut.bmp", cut_off, "truncated: the BMP"),
    ("cut.gif", cut_off, "truncated"),
    ("cut.tif", cut_off, "truncated"),
    ("text.jpg", lambda data: b"there was an error, please log in", "not an image: unknown file signature"),
    ("page.jpg", lambda data: b"<!DOCTYPE html><html></html>", "unsupported format: HTML"),
    ("phone.jpg", lambda data: b"\0\0\0\x18ftypheic\0\0\0\0mif1", "unsupported format: HEIC"),
    ("pointer.jpg", lambda data: b"version https://git-lfs.github.com/spec/v1", "unsupported format: Git LFS"),
]


@pytest.mark.parametrize(
    ("name", "damage", "reason"), UNUSABLE, ids=lambda value: value if isinstance(value, str) else ""
)
def test_unusable_file_has_a_reason(tmp_path: Path, name: str, damage: Callable[[bytes], bytes], reason: str) -> None:
    path = tmp_path / name
    picture().save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UnreadableImage) as caught:
        read_header(str(path))
    assert caught.value.why.startswith(reason)


def test_folder_or_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match="a folder, not a file"):
        read_header(str(tmp_path))
    with pytest.raises(UnreadableImage, match="can't be read: No such file"):
        read_header(str(tmp_path / "gone.jpg"))


def test_trailing_data_after_a_jpeg_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "motion.jpg"
    picture().save(path)
    path.write_bytes(path.read_bytes() + b"\0" * 3_000_000)
    assert read_header(str(path)).width == 40


def test_tiff_with_strips_past_its_end_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    picture().save(path)
    data = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    for entry in range(first + 2, first + 2 + 12 * count, 12):
        if struct.unpack_from("<H", data, entry)[0] == 273:
            struct.pack_into("<I", data, entry + 8, len(data))
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableImage, match="truncated"):
        read_header(str(path))
