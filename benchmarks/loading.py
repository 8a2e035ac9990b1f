"""CPU time and peak memory of loading large images with oomph and with other libraries, on one thread.

    python benchmarks/loading.py make FOLDER        # synthetic photographs and a 20,000 × 20,000 TIFF, 2 GB
    python benchmarks/loading.py join FOLDER --photographs OTHER   # 24-megapixel images made of real photographs
    python benchmarks/loading.py run FOLDER         # the tables of benchmarks/results/loading.md

Every method runs in its own process. The methods are interleaved, and the best of several rounds counts. CPU time is
measured, because other work on the machine delays wall time. Peak memory is VmHWM minus its value after the imports and
one small image. OpenCV, rasterio and simplejpeg are left out if they are not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PHOTOS, WIDTH, HEIGHT, SIDE = 6, 6000, 4000, 640
BIG, WINDOW, WINDOWS, NAMES = 20_000, 1024, 16, 2_000_000
Array = NDArray[np.uint8]


# --- test images -----------------------------------------------------------------------------------------


def photo(seed: int, width: int = WIDTH, height: int = HEIGHT) -> Any:
    """Return a synthetic photograph: noise at all scales, grain, shapes and text."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(seed)
    whole = np.zeros((height, width, 3), np.float32)
    for power in range(10):
        cell = 2**power
        noise = rng.standard_normal((height // cell + 2, width // cell + 2, 3)).astype(np.float32)
        for band in range(3):
            layer = Image.fromarray(np.ascontiguousarray(noise[..., band]))
            whole[..., band] += np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC)) * cell**0.9
    whole -= whole.min()
    whole *= 255 / whole.max()
    whole += rng.standard_normal((height, width, 1)).astype(np.float32) * 3
    image = Image.fromarray(np.clip(whole, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for number in range(400):
        x, y, side = int(rng.integers(width)), int(rng.integers(height)), int(rng.integers(20, 500))
        color = tuple(rng.integers(0, 255, 3).tolist())
        shape = draw.ellipse if number % 2 else draw.rectangle
        shape((x, y, x + side, y + side * 0.7), fill=color if number % 3 else None, outline=color, width=6)
    for _ in range(150):
        position = (int(rng.integers(width)), int(rng.integers(height)))
        draw.text(position, "The quick brown fox 0123", fill=(0, 0, 0), font_size=int(rng.integers(24, 120)))
    return image


def make(folder: Path) -> None:
    """Write the synthetic images."""
    import tifffile
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    images = []
    for number in range(PHOTOS):
        images.append(photo(number))
        images[-1].save(folder / f"photo{number}.jpg", quality=90)
    images[0].save(folder / "restart.jpg", quality=90, restart_marker_rows=1)
    big = np.zeros((BIG, BIG, 3), np.uint8)
    for top in range(0, BIG, HEIGHT):
        for number, left in enumerate(range(0, BIG, WIDTH)):
            part = np.asarray(images[number])[: BIG - top, : BIG - left]
            big[top : top + HEIGHT, left : left + WIDTH] = part
    options: dict[str, Any] = {"photometric": "rgb", "compression": "deflate", "predictor": True}
    tifffile.imwrite(folder / "tiled.tif", big, tile=(256, 256), **options)
    tifffile.imwrite(folder / "strip.tif", big, rowsperstrip=1, **options)
    Image.MAX_IMAGE_PIXELS = None
    whole = Image.fromarray(big)
    whole.save(folder / "huge.jpg", quality=85)
    whole.save(folder / "huge-progressive.jpg", quality=85, progressive=True)
    whole.save(folder / "huge.png", compress_level=1)


def join(folder: Path, others: Path) -> None:
    """Write 24-megapixel images of real content: mosaics of photographs, and photographs enlarged.

    The mosaics are sharper than the pixels of a 24-megapixel camera, the enlarged ones softer.
    """
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    photographs = [
        Image.open(path).convert("RGB") for path in sorted(others.iterdir()) if path.suffix in {".jpg", ".png"}
    ]
    for number in range(3):
        rng = np.random.default_rng(number)
        whole = Image.new("RGB", (WIDTH, HEIGHT))
        for top in range(0, HEIGHT, 500):
            left = 0
            while left < WIDTH:
                part = photographs[int(rng.integers(len(photographs)))]
                part = part.crop((0, 0, part.width, min(part.height, 500)))
                part = part.resize((part.width * 500 // part.height, 500), Image.Resampling.LANCZOS)
                whole.paste(part, (left, top))
                left += part.width
        whole.save(folder / f"joined{number}.jpg", quality=90)
    grain = np.random.default_rng(0).standard_normal((HEIGHT, WIDTH, 3)).astype(np.float32) * 4
    for number, image in enumerate(photographs[:6]):
        scale = max(WIDTH / image.width, HEIGHT / image.height)
        size = (round(image.width * scale), round(image.height * scale))
        large = np.asarray(image.resize(size, Image.Resampling.LANCZOS))[:HEIGHT, :WIDTH] + grain
        Image.fromarray(np.clip(large, 0, 255).astype(np.uint8)).save(folder / f"enlarged{number}.jpg", quality=90)


# --- methods ---------------------------------------------------------------------------------------------


def target() -> tuple[int, int]:
    """Return the width and height that a photograph is resized to."""
    return SIDE, round(SIDE * HEIGHT / WIDTH)


def letterbox_pillow(file: str) -> Array:
    """Open, convert and resize, as usual with torchvision."""
    from PIL import Image

    with Image.open(file) as image:
        return np.asarray(image.convert("RGB").resize(target(), Image.Resampling.BICUBIC))


def letterbox_opencv(file: str) -> Array:
    """Decode all and resize linearly, as YOLO trainers do."""
    import cv2

    cv2.setNumThreads(1)
    return np.asarray(cv2.resize(cv2.imread(file), target(), interpolation=cv2.INTER_LINEAR)[..., ::-1])


def letterbox_opencv_area(file: str) -> Array:
    """Decode all and resize by averaging."""
    import cv2

    cv2.setNumThreads(1)
    return np.asarray(cv2.resize(cv2.imread(file), target(), interpolation=cv2.INTER_AREA)[..., ::-1])


def letterbox_oomph(file: str) -> Array:
    """Read the header, and decode only what is needed."""
    from oomph.data import decode, read_header

    return decode(file, (SIDE, SIDE), read_header(file)).pixels


def random_corners(count: int, width: int, height: int, seed: int = 0) -> list[tuple[int, int]]:
    """Return random top-left corners of windows."""
    rng = np.random.default_rng(seed)
    return [(int(rng.integers(width - WINDOW)), int(rng.integers(height - WINDOW))) for _ in range(count)]


def windows_opencv(file: str, corners: list[tuple[int, int]]) -> list[Array]:
    """Decode the whole image for every window, as the __getitem__ of a dataset does."""
    import cv2

    cv2.setNumThreads(1)
    windows = []
    for left, top in corners:
        windows.append(np.asarray(cv2.imread(file))[top : top + WINDOW, left : left + WINDOW, ::-1].copy())
    return windows


def windows_pillow(file: str, corners: list[tuple[int, int]]) -> list[Array]:
    """Open and crop."""
    from PIL import Image

    windows = []
    for left, top in corners:
        with Image.open(file) as image:
            windows.append(np.asarray(image.crop((left, top, left + WINDOW, top + WINDOW))))
    return windows


def windows_oomph(file: str, corners: list[tuple[int, int]]) -> list[Array]:
    """Decode eight windows at once if the whole image must be decoded, otherwise one by one."""
    from oomph.data import Window, decode_windows, read_header

    header = read_header(file)
    group = 8 if header.format == "jpeg" and not header.restart_interval else 1
    pixels = []
    for start in range(0, len(corners), group):
        windows = [Window(left, top, left + WINDOW, top + WINDOW) for left, top in corners[start : start + group]]
        pixels += [picture.pixels for picture in decode_windows(file, windows, header)]
    return pixels


def windows_rasterio(file: str, corners: list[tuple[int, int]]) -> list[Array]:
    """Read windows with a small GDAL cache."""
    import rasterio
    from rasterio.windows import Window as Part

    windows = []
    with rasterio.Env(GDAL_CACHEMAX=16), rasterio.open(file) as raster:
        for left, top in corners:
            windows.append(np.moveaxis(raster.read(window=Part(left, top, WINDOW, WINDOW)), 0, 2))
    return windows


LETTERBOX_METHODS: dict[str, tuple[str | None, Callable[[str], Array]]] = {
    "Pillow: open, convert, bicubic": (None, letterbox_pillow),
    "OpenCV: imread, linear": ("cv2", letterbox_opencv),
    "OpenCV: imread, area": ("cv2", letterbox_opencv_area),
    "oomph": (None, letterbox_oomph),
}
WINDOW_METHODS: dict[str, tuple[str | None, str, Callable[[str, list[tuple[int, int]]], list[Array]]]] = {
    "JPEG of 24 MP, OpenCV": ("cv2", "photo0.jpg", windows_opencv),
    "JPEG of 24 MP, Pillow": (None, "photo0.jpg", windows_pillow),
    "JPEG of 24 MP, oomph, 8 windows per decoding": (None, "photo0.jpg", windows_oomph),
    "JPEG of 24 MP with restart markers, oomph, one by one": (None, "restart.jpg", windows_oomph),
    "tiled TIFF of 400 MP, rasterio": ("rasterio", "tiled.tif", windows_rasterio),
    "tiled TIFF of 400 MP, oomph": (None, "tiled.tif", windows_oomph),
    "strip TIFF of 400 MP, rasterio": ("rasterio", "strip.tif", windows_rasterio),
    "strip TIFF of 400 MP, oomph": (None, "strip.tif", windows_oomph),
}


# --- measuring -------------------------------------------------------------------------------------------


def peak_rss() -> int:
    """Return the peak RSS of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def tree_bytes() -> int:
    """Return the PSS of this process and its children, in bytes."""
    import psutil

    total = 0
    parent = psutil.Process()
    for process in [parent, *parent.children(recursive=True)]:
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def child_letterbox(folder: Path, method: str) -> dict[str, float]:
    """Measure whole synthetic photographs."""
    return whole_images(folder, method, "photo*.jpg")


def child_joined(folder: Path, method: str) -> dict[str, float]:
    """Measure mosaics of real photographs."""
    return whole_images(folder, method, "joined*.jpg")


def child_enlarged(folder: Path, method: str) -> dict[str, float]:
    """Measure enlarged real photographs."""
    return whole_images(folder, method, "enlarged*.jpg")


def whole_images(folder: Path, method: str, names: str) -> dict[str, float]:
    """Measure CPU time and memory of the whole images with matching names."""
    work = LETTERBOX_METHODS[method][1]
    small = folder / "small.jpg"
    work(str(small))
    base = peak_rss()
    files = sorted(str(path) for path in folder.glob(names))
    started = time.process_time()
    for file in files:
        work(file)
    return {"ms": (time.process_time() - started) / len(files) * 1e3, "mb": (peak_rss() - base) / 1e6}


def child_windows(folder: Path, method: str) -> dict[str, float]:
    """Measure CPU time and memory of windows."""
    _, name, work = WINDOW_METHODS[method]
    file = str(folder / name)
    width, height = (BIG, BIG) if name.endswith(".tif") else (WIDTH, HEIGHT)
    if not name.endswith(".tif"):
        letterbox_oomph(str(folder / "small.jpg"))
    else:
        work(file, random_corners(1, width, height, 1))
    base = peak_rss()
    corners = random_corners(WINDOWS, width, height)
    started = time.process_time()
    for start in range(0, len(corners), 8):
        work(file, corners[start : start + 8])
    return {"ms": (time.process_time() - started) / len(corners) * 1e3, "mb": (peak_rss() - base) / 1e6}


def measure_growth(work: Callable[[], int]) -> tuple[int, float, int]:
    """Return the result of a function, its seconds, and the peak growth of the process tree."""
    import gc
    import threading

    gc.collect()
    base = highest = tree_bytes()
    running = True

    def watch() -> None:
        nonlocal highest
        while running:
            highest = max(highest, tree_bytes())
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    count = work()
    seconds = time.perf_counter() - started
    running = False
    watcher.join()
    return count, seconds, highest - base


class Photos:
    """A typical map-style dataset that opens, converts and resizes."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        import torch

        canvas = np.full((SIDE, SIDE, 3), 114, np.uint8)
        pixels = letterbox_pillow(self.files[index])
        canvas[: len(pixels)] = pixels
        return torch.from_numpy(canvas).permute(2, 0, 1)


def child_loader(folder: Path, method: str) -> dict[str, float]:
    """Measure a whole loader over 24 photographs in batches of 4; memory grows from the constructed loader."""
    import torch

    from oomph.data import Loader

    torch.set_num_threads(1)
    files = sorted(str(path) for path in folder.glob("photo*.jpg")) * 4
    loader: Any
    if method.startswith("oomph"):
        loader = Loader(files, size=SIDE, batch=4, threads=2, budget="256MB")
    else:
        loader = torch.utils.data.DataLoader(Photos(files), batch_size=4, num_workers=int(method.split()[-2]))  # type: ignore[arg-type]
    count, seconds, over = measure_growth(
        lambda: sum(len(batch[0]) if method.startswith("oomph") else len(batch) for batch in loader)
    )
    return {"images/s": count / seconds if method.startswith("oomph") else len(files) / seconds, "mb": over / 1e6}


def child_budget(folder: Path, method: str) -> dict[str, float]:
    """Load fifty photographs and three images of 400 megapixels within 256 MB."""
    del method
    from oomph.data import Loader

    photos = sorted(str(path) for path in folder.glob("photo*.jpg"))
    files = [photos[number % len(photos)] for number in range(50)]
    files += [str(folder / name) for name in ("huge.jpg", "huge-progressive.jpg", "huge.png")]
    loader = Loader(files, size=SIDE, batch=2, budget="256MB")
    count, seconds, over = measure_growth(lambda: sum(len(batch.indices) for batch in loader))
    for skipped in loader.skipped():
        sys.stderr.write(f"skipped: {Path(skipped.path).name}: {skipped.reason}\n")
    return {"delivered": count, "skipped": len(loader.skipped()), "s": seconds, "mb": over / 1e6}


def child_names(folder: Path, method: str) -> dict[str, float]:
    """Read two million names in four workers: growth of each over an epoch, and memory of the whole tree."""
    import multiprocessing

    from oomph.data import ImageIndex

    before = tree_bytes()
    index = ImageIndex.of([folder / "small.jpg"]).select(np.zeros(NAMES, np.int64)).shared()
    context: Any = multiprocessing.get_context(method)
    pipes, workers = [], []
    for number in range(4):
        ours, theirs = context.Pipe()
        workers.append(context.Process(target=read_names, args=(index, theirs, number)))
        workers[-1].start()
        pipes.append(ours)
    growth = [pipe.recv() for pipe in pipes]
    total = tree_bytes() - before
    for pipe in pipes:
        pipe.send("done")
    for worker in workers:
        worker.join()
    return {"growth per worker, MB": max(growth) / 1e6, "index, MB": index.nbytes / 1e6, "tree, MB": total / 1e6}


def read_names(index: Any, pipe: Any, seed: int) -> None:
    """Read every name once, in random order."""
    order = np.random.default_rng(seed).permutation(len(index))
    index.path(0)
    before = private_bytes()
    for number in order:
        index.path(number)
    pipe.send(private_bytes() - before)
    pipe.recv()


def private_bytes() -> int:
    """Return the private memory that this process has written to."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_Dirty:"))


LOADERS = ("DataLoader, Pillow, 2 workers", "DataLoader, Pillow, 8 workers", "oomph, 2 threads")
CHILDREN: dict[str, Callable[[Path, str], dict[str, float]]] = {
    "letterbox": child_letterbox,
    "joined": child_joined,
    "enlarged": child_enlarged,
    "windows": child_windows,
    "loader": child_loader,
    "budget": child_budget,
    "names": child_names,
}


def quality(folder: Path, method: str, names: str) -> float:
    """Return the median PSNR against a full decoding and Lanczos, in dB."""
    from PIL import Image

    values = []
    for file in sorted(folder.glob(names)):
        with Image.open(file) as image:
            expected = np.asarray(image.resize(target(), Image.Resampling.LANCZOS), float)
        actual = LETTERBOX_METHODS[method][1](str(file)).astype(float)
        values.append(10 * np.log10(255**2 / np.mean((actual - expected) ** 2)))
    return float(np.median(values))


def measure(kind: str, folder: Path, methods: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Return the best of several rounds of every method, interleaved, each in its own process."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for method in methods:
            command = [sys.executable, __file__, "child", str(folder), "--kind", kind, "--method", method]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
            result = json.loads(done.stdout)
            previous = best.get(method, result)
            best[method] = {
                name: max(previous[name], value) if name in {"mb", "images/s"} else min(previous[name], value)
                for name, value in result.items()
            }
    return best


def table(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Print one table."""
    columns = list(next(iter(rows.values())))
    print(f"\n## {title}\n\n| method | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for method, row in rows.items():
        print(f"| {method} | {' | '.join(f'{row[name]:.1f}' for name in columns)} |")


def run(folder: Path, rounds: int, *, whole_only: bool) -> None:
    """Measure everything and print the tables."""
    from PIL import Image

    Image.new("RGB", (64, 64)).save(folder / "small.jpg")
    installed = {
        name: importlib.util.find_spec(name) is not None for name in ("cv2", "rasterio", "simplejpeg", "imagecodecs")
    }
    print(
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    print(f"installed: {', '.join(name for name, is_installed in installed.items() if is_installed) or 'Pillow alone'}")
    methods = [method for method, (package, _) in LETTERBOX_METHODS.items() if package is None or installed[package]]
    sets = {"letterbox": "photo*.jpg", "joined": "joined*.jpg", "enlarged": "enlarged*.jpg"}
    for kind, names in sets.items():
        if not any(folder.glob(names)):
            continue
        letterboxes = measure(kind, folder, methods, rounds)
        for method in methods:
            letterboxes[method]["PSNR dB"] = quality(folder, method, names)
        table(f"Whole JPEG of 24 megapixels to 640, one core: {names}", letterboxes)
    if whole_only:
        return
    window_methods = [
        method for method, (package, _, _) in WINDOW_METHODS.items() if package is None or installed[package]
    ]
    table("Windows of 1024 × 1024, CPU time each", measure("windows", folder, window_methods, rounds))
    table("Whole loaders over 24 photographs", measure("loader", folder, list(LOADERS), 1))
    table(
        "A budget of 256 MB: 50 photographs and three images of 400 megapixels", measure("budget", folder, ["oomph"], 1)
    )


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "join", "run", "child"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--photographs", type=Path, help="a folder of photographs, for join")
    parser.add_argument("--whole-only", action="store_true", help="run: whole images alone")
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--method", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what == "make":
        make(arguments.folder)
    elif arguments.what == "join":
        join(arguments.folder, arguments.photographs)
    elif arguments.what == "run":
        run(arguments.folder, arguments.rounds, whole_only=arguments.whole_only)
    else:
        print(json.dumps(CHILDREN[arguments.kind](arguments.folder, arguments.method)))


if __name__ == "__main__":
    main()
