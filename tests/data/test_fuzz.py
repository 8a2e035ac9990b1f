"""Thousands of damaged files: no crash, no hang, no allocation above what the header says."""

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

from .pictures import scene

BUDGET = 64_000_000
ROUNDS = 250  # damaged copies of each file


def originals() -> dict[str, bytes]:
    """A small file of every kind."""
    picture = Image.fromarray(scene(70, 50))
    kinds: list[tuple[str, str, dict[str, object]]] = [
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
    found = {}
    for number, (suffix, mode, options) in enumerate(kinds):
        file = io.BytesIO()
        name = {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper())
        picture.convert(mode).save(file, name, **options)
        found[f"{number}.{suffix}"] = file.getvalue()
    file = io.BytesIO()
    np.save(file, scene(70, 50))
    found["a.npy"] = file.getvalue()
    return found


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed (mostly in the header), removed, doubled or cut off."""
    on_error = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(min(len(on_error), rng.choice((32, 200, 700, len(on_error)))))
        what = rng.randrange(6)
        if what < 3:
            on_error[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what == 3:
            on_error[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\xff\xff"))
        elif what == 4:
            del on_error[at : at + rng.choice((1, 2, 100))]
        else:
            on_error[at:at] = on_error[at : at + 20]
        if not on_error:
            return b""
    return bytes(on_error if rng.random() < 0.9 else on_error[: rng.randrange(len(on_error))])


def use(path: str) -> str:
    """Do with a file what a loader does: read its header, count its bytes, decode it if they fit."""
    try:
        header = read_header(path)
        size = fit_size(header.shown, (32, 32))
        if decode_cost(header, size) > BUDGET:
            return "too large"
        picture = decode(path, (32, 32), header)
        assert picture.pixels.shape == (size[1], size[0], 3)
        window = Window(0, 0, min(header.shown[0], 16), min(header.shown[1], 16))
        if decode_windows_cost(header, [window]) <= BUDGET:
            assert decode_windows(path, [window], header)[0].pixels.shape == (window.bottom, window.right, 3)
    except UnreadableImage as on_error:
        assert on_error.why
        return "set aside"
    return "decoded"


def attack(folder: str, seed: int) -> None:
    """What the child process does: its address space is limited, so that a large allocation is an error."""
    import oomph.data.decoding._blocks as blocks
    import oomph.data.decoding._turbo as turbo

    rng = random.Random(seed)  # noqa: S311  damage, not secrets
    blocks.codecs()
    turbo.turbo()
    path = Path(folder) / "warm.png"
    Image.fromarray(scene(70, 50)).save(path)
    use(str(path))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + BUDGET + 200_000_000  # threads' stacks and arenas are address space too
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    outcomes = dict.fromkeys(("decoded", "set aside", "too large"), 0)
    slowest = 0.0
    for (name, data), number in itertools.product(originals().items(), range(ROUNDS)):
        path = Path(folder) / f"{number}-{name}"
        path.write_bytes(damaged(data, rng))
        began = time.process_time()
        outcomes[use(str(path))] += 1
        slowest = max(slowest, time.process_time() - began)
        path.unlink()
    sys.stdout.write(f"{outcomes['decoded']} {outcomes['set aside']} {outcomes['too large']} {slowest}\n")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_thousands_of_damaged_files_end_in_a_picture_or_a_reason(tmp_path: Path) -> None:
    code = f"from tests.data.test_fuzz import attack; attack({str(tmp_path)!r}, 0)"
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert child.returncode == 0, child.stderr[-3000:]
    decoded, skipped, large, slowest = child.stdout.split()
    assert int(decoded) + int(skipped) + int(large) == len(originals()) * ROUNDS
    assert min(int(decoded), int(skipped)) > 500
    assert int(large) > 5
    assert float(slowest) < 5


def test_headers_of_nothing_but_noise_are_refused(tmp_path: Path) -> None:
    rng = random.Random(1)  # noqa: S311
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
        except UnreadableImage as on_error:
            assert on_error.why
