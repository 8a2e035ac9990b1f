"""Thousands of damaged files: no crash, no hang, no allocation above the predicted cost."""

from __future__ import annotations

import io
import itertools
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oomph.data import (
    Header,
    UnreadableImage,
    Window,
    decode,
    decode_cost,
    decode_windows,
    decode_windows_cost,
    fit_size,
    read_header,
)
from oomph.data.decoding import load_imagecodecs, load_simplejpeg

from .images import scene

BUDGET = 64_000_000
COPIES = 120  # damaged copies of each file


def originals() -> dict[str, bytes]:
    """Return a small file of every format."""
    picture = Image.fromarray(scene(70, 50))
    formats: list[tuple[str, str, dict[str, object]]] = [
        ("jpg", "RGB", {}),
        ("jpg", "RGB", {"progressive": True}),
        ("jpg", "RGB", {"restart_marker_rows": 1}),
        ("jpg", "CMYK", {}),
        ("png", "RGB", {}),
        ("png", "P", {}),
        ("png", "RGBA", {"save_all": True, "append_images": [picture.convert("RGBA").rotate(90)]}),
        ("webp", "RGB", {}),
        ("webp", "RGB", {"lossless": True}),
        ("gif", "P", {"save_all": True, "append_images": [picture.convert("P").rotate(90)]}),
        ("bmp", "RGB", {}),
        ("bmp", "P", {}),
        ("tif", "RGB", {}),
        ("tif", "RGB", {"compression": "tiff_deflate"}),
        ("tif", "RGB", {"compression": "tiff_lzw"}),
        ("tif", "RGB", {"compression": "jpeg"}),
        ("tif", "1", {"compression": "group4"}),
        ("tif", "F", {"big_tiff": True}),
    ]
    files = {}
    for number, (suffix, mode, options) in enumerate(formats):
        file = io.BytesIO()
        name = {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper())
        picture.convert(mode).save(file, name, **options)
        files[f"{number}.{suffix}"] = file.getvalue()
    file = io.BytesIO()
    np.save(file, scene(70, 50))
    files["a.npy"] = file.getvalue()
    return files


def damage(data: bytes, rng: random.Random) -> bytes:
    """Change, remove, repeat or cut off bytes, mostly in the header."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(min(len(damaged), rng.choice((32, 200, 700, len(damaged)))))
        kind = rng.randrange(6)
        if kind < 3:
            damaged[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 3:
            damaged[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\xff\xff"))
        elif kind == 4:
            del damaged[at : at + rng.choice((1, 2, 100))]
        else:
            damaged[at:at] = damaged[at : at + 20]
        if not damaged:
            return b""
    return bytes(damaged if rng.random() < 0.9 else damaged[: rng.randrange(len(damaged))])


def use(path: str) -> str:
    """Use a file like a loader: read its header, compute its cost, decode it if it fits the budget."""
    try:
        header = read_header(path)
        size = fit_size(header.display_size, (32, 32))
        if decode_cost(header, size) > BUDGET:
            return "too large"
        picture = decode(path, (32, 32), header)
        assert picture.pixels.shape == (size[1], size[0], 3)
        window = Window(0, 0, min(header.display_size[0], 16), min(header.display_size[1], 16))
        if decode_windows_cost(header, [window]) <= BUDGET:
            assert decode_windows(path, [window], header)[0].pixels.shape == (window.bottom, window.right, 3)
    except UnreadableImage as error:
        assert error.why
        return "skipped"
    return "decoded"


def use_damaged_files(folder: str, seed: int) -> None:
    """Run in a process with limited address space, in which a large allocation is an error."""
    rng = random.Random(seed)  # noqa: S311  not for security
    load_imagecodecs()
    load_simplejpeg()
    path = Path(folder) / "warm.png"
    Image.fromarray(scene(70, 50)).save(path)
    use(str(path))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + BUDGET + 200_000_000  # for the stacks and arenas of threads
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    outcomes = dict.fromkeys(("decoded", "skipped", "too large"), 0)
    slowest = 0.0
    for (name, data), number in itertools.product(originals().items(), range(COPIES)):
        path = Path(folder) / f"{number}-{name}"
        path.write_bytes(damage(data, rng))
        started = time.process_time()
        outcomes[use(str(path))] += 1
        slowest = max(slowest, time.process_time() - started)
        path.unlink()
    sys.stdout.write(f"{outcomes['decoded']} {outcomes['skipped']} {outcomes['too large']} {slowest}\n")


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_damaged_files_are_decoded_or_skipped_with_a_reason(tmp_path: Path) -> None:
    code = f"from tests.data.test_fuzz import use_damaged_files; use_damaged_files({str(tmp_path)!r}, 0)"
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert child.returncode == 0, child.stderr[-3000:]
    decoded, skipped, too_large, slowest = child.stdout.split()
    assert int(decoded) + int(skipped) + int(too_large) == len(originals()) * COPIES
    assert min(int(decoded), int(skipped)) > 400
    assert int(too_large) > 5
    assert float(slowest) < 5


def test_damaged_copies_in_this_process(tmp_path: Path) -> None:
    rng = random.Random(2)  # noqa: S311  not for security
    outcomes = set()
    for name, data in originals().items():
        for _ in range(8):
            path = tmp_path / name
            path.write_bytes(damage(data, rng))
            outcomes.add(use(str(path)))
    assert outcomes >= {"decoded", "skipped"}


def test_random_bytes_after_a_signature_are_a_header_or_a_reason(tmp_path: Path) -> None:
    rng = random.Random(1)  # noqa: S311  not for security
    path = tmp_path / "noise.jpg"
    starts = [
        b"\xff\xd8\xff",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\0\0\0\0WEBP",
        b"II*\0",
        b"MM\0+",
        b"GIF89a",
        b"BM",
        b"\x93NUMPY",
    ]
    for number in range(600):
        path.write_bytes(starts[number % len(starts)] + rng.randbytes(rng.randrange(200)))
        try:
            assert isinstance(read_header(str(path)), Header)
        except UnreadableImage as error:
            assert error.why
