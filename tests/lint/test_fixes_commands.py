from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomph.lint import fix_text, lint_text

SCRIPTS = Path(__file__).parent / "scripts"

# A train.py with options of YOLOv5's. It checks the allocator's setting as torch does on a GPU, and trains a little.
TRAIN = """
import argparse, os
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--imgsz", "--img", "--img-size", type=int, default=64)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=8)
parser.add_argument("--data")
parser.add_argument("--weights")
args = parser.parse_args()
setting = os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
if setting:
    torch._C._accelerator_setAllocatorSettings(setting)
torch.manual_seed(0)
model = torch.nn.Linear(args.imgsz, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for _ in range(20):
    x = torch.randn(args.batch_size, args.imgsz)
    optimizer.zero_grad()
    loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses[-1] < losses[0], args.batch_size, args.workers)
"""
# An nvidia-smi that knows three fields and refuses others as the real one does.
NVIDIA_SMI = """#!/bin/sh
for argument in "$@"; do
    case $argument in
        --query-gpu=*) fields=$(echo "${argument#*=}" | tr , ' ') ;;
    esac
done
for field in $fields; do
    case $field in
        index | utilization.gpu | memory.used) ;;
        *) echo "Field \\"$field\\" is not a valid field to query."; exit 2 ;;
    esac
done
echo "0, 93 %, 11200 MiB"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(NVIDIA_SMI)
    (programs / "nvidia-smi").chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    return tmp_path


def run(folder: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    path = folder / name
    path.write_text(text)
    environment = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    program = ["sh"] if path.suffix == ".sh" else [sys.executable]
    command = [*program, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False, timeout=120
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "rule", "count", "output"),
    [
        ("allocator_setting.sh", "alloc-conf-unknown", 2, "True"),
        ("allocator_variable.py", "alloc-conf-unknown", 1, "0."),
        ("escaped_command.py", "nested-shell-escape", 1, "0.125"),
        ("yolo_command.sh", "unknown-yolo-flag", 2, "True 4 0"),
        ("monitor.sh", "unknown-nvidia-smi-field", 2, "0, 93 %"),
    ],
)
def test_fixed_script_runs(folder: Path, name: str, rule: str, count: int, output: str) -> None:
    text = (SCRIPTS / name).read_text(encoding="utf-8")
    before = run(folder, name, text)
    assert before.returncode != 0
    assert {diagnostic.rule for diagnostic in lint_text(text, name).diagnostics} == {rule}

    fixed, fixes = fix_text(text, name)
    after = run(folder, name, fixed)
    assert fixes == count
    assert (after.returncode, after.stderr) == (0, "")
    assert after.stdout.startswith(output)
    assert fix_text(fixed, name) == (fixed, 0)
    assert fixed.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("name", "text", "fixed"),
    [
        (
            "a.py",
            'from ultralytics import YOLO\nYOLO("yolov8n.pt").train(data="a.yaml", batch_size=4, learning_rate=0.1)\n',
            'from ultralytics import YOLO\nYOLO("yolov8n.pt").train(data="a.yaml", batch=4, lr0=0.1)\n',
        ),
        ("a.sh", "yolo train data=a.yaml img_size=320\n", "yolo train data=a.yaml imgsz=320\n"),
        ("a.sh", "yolo train batch=4 batch_size=8\n", "yolo train batch=4 batch_size=8\n"),
        (
            "a.py",
            'import os\nos.system("nvidia-smi --query-gpu=gpu.utilization --interval=3 --format=csv")\n',
            'import os\nos.system("nvidia-smi --query-gpu=utilization.gpu --loop=3 --format=csv")\n',
        ),
        ("a.sh", 'nvidia-smi --query-gpu="name,temp.gpu"\n', 'nvidia-smi --query-gpu="name,temperature.gpu"\n'),
        # The right field is there already, so its second column would say nothing new.
        (
            "a.sh",
            "nvidia-smi --query-gpu=memory.used,memory.usage --format=csv\n",
            "nvidia-smi --query-gpu=memory.used,memory.usage --format=csv\n",
        ),
        (
            "a.sh",
            "nvidia-smi --query-gpu=mem.used,used.memory --format=csv\n",
            "nvidia-smi --query-gpu=memory.used,used.memory --format=csv\n",
        ),
        # No field has this meaning, so only the message helps.
        ("a.sh", "nvidia-smi --query-gpu=memory.percent\n", "nvidia-smi --query-gpu=memory.percent\n"),
        (
            "a.md",
            "> ```sh\n> é; export PYTORCH_CUDA_ALLOC_CONF=expandable_segment:True\n> ```\n",
            "> ```sh\n> é; export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n> ```\n",
        ),
        # 134217728 is no size in MB.
        (
            "a.sh",
            "export PYTORCH_CUDA_ALLOC_CONF=max_split_size:134217728\n",
            "export PYTORCH_CUDA_ALLOC_CONF=max_split_size:134217728\n",
        ),
        # run_cell knows the `!`, so the string must keep it.
        (
            "a.py",
            'import os\nc = "!ls"\nget_ipython().run_cell(c)\nos.system(c)\n',
            'import os\nc = "!ls"\nget_ipython().run_cell(c)\nos.system(c)\n',
        ),
    ],
)
def test_fixed_text(name: str, text: str, fixed: str) -> None:
    assert lint_text(text, name).diagnostics
    result, count = fix_text(text, name)
    assert result == fixed
    assert bool(count) is (text != fixed)
    assert fix_text(result, name) == (result, 0)
