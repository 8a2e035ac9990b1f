"""Train a detector while another process takes most of the GPU for a while: the run of the README's pictures.

    PYTHONPATH=src python3 benchmarks/shared_gpu.py --data bccd.yaml --out FOLDER

Writes the run without its weights to FOLDER/run, and lines of `oomph watch` to FOLDER/watch.txt. Needs a GPU.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

_GIB = 2**30
_NEIGHBOR = """
import sys, time, torch
left, seconds = int(sys.argv[1]), float(sys.argv[2])
held = []
deadline = time.time() + seconds
while time.time() < deadline:
    # Also what the training returns to the driver after its first out-of-memory error.
    free, _ = torch.cuda.mem_get_info()
    while free - left > 2**28:
        try:
            held.append(torch.empty(free - left, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            break
        free, _ = torch.cuda.mem_get_info()
    time.sleep(0.5)
"""


def main() -> None:
    """Run the training, the neighbor and the watch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the data.yaml")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--img", type=int, default=1280)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--after", type=float, default=25.0, help="seconds of training before the neighbor starts")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the neighbor stays")
    parser.add_argument("--left", type=float, default=6.0, help="GiB that the neighbor leaves free")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "oomph", "train", "--data", arguments.data, "--cfg", "s"]
    command += [
        "--img",
        str(arguments.img),
        "--batch",
        str(arguments.batch),
        "--epochs",
        str(arguments.epochs),
        "--name",
        "shared-gpu",
    ]
    run = Path("runs/train/shared-gpu")
    training = subprocess.Popen(command)
    with (arguments.out / "watch.txt").open("w") as lines:
        watch = subprocess.Popen([sys.executable, "-m", "oomph", "watch", str(training.pid)], stdout=lines)
        while training.poll() is None and not (run / "train_batch0.png").exists():
            time.sleep(0.2)
        time.sleep(arguments.after)
        if training.poll() is None:
            left = str(int(arguments.left * _GIB))
            subprocess.run([sys.executable, "-c", _NEIGHBOR, left, str(arguments.seconds)], check=True)
        exit_code = training.wait()
        watch.wait()
    shutil.copytree(run, arguments.out / "run", ignore=shutil.ignore_patterns("*.pt", "*.npz"))
    print(f"training ended with {exit_code}; its folder without weights is {arguments.out / 'run'}")
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
