"""Measures what the rules about commands and settings find: settings that come too late or are not recognized.

Every row runs a small script in a process of its own, because torch and CUDA read their variables once per process.
Prints a Markdown table: rule, result of the wrong code, result of the right one, what was run.

    python benchmarks/lint/commands.py --device cuda
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator

Row = tuple[str, str, str, str]

_ALLOCATOR = """
import os
{before}
os.environ["{variable}"] = "{value}"
import torch
x = torch.zeros(1 << 20, device="cuda")
segments = torch.cuda.memory._snapshot()["segments"]
print("expandable" if any(s["is_expandable"] for s in segments) else "fixed", torch.cuda.get_allocator_backend())
"""
_DEVICES = """
import os
{before}
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
try:
    torch.zeros(1, device="cuda")
    print("the GPU is used")
except RuntimeError:
    print("no GPU is used")
"""
_BLOCKING = """
import os
{before}
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
import time, torch
x = torch.randn(8192, 8192, device="cuda")
(x @ x).sum().item()
start = time.perf_counter()
y = x @ x
print(f"{{(time.perf_counter() - start) * 1000:.2f}} ms for the launch of a product")
"""
_USE = 'import torch; torch.zeros(1, device="cuda")'
_PARSE = 'import torch; torch._C._accelerator_setAllocatorSettings("{value}"); print("accepted")'
_ALLOCATE = 'import torch; torch.zeros(1, device="cuda"); print("accepted")'
_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONFIG", "CUDA_VISIBLE_DEVICES")


def run(code: str, **environment: str) -> str:
    """Return the last line that a script prints, or the line of its error."""
    inherited = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**inherited, **environment}, check=False
    )
    lines = (process.stdout if process.returncode == 0 else process.stderr).strip().splitlines()
    if process.returncode:
        lines = [line for line in lines if "Error: " in line] or lines
    return lines[-1][:160] if lines else ""


def escapes() -> Iterator[Row]:
    """Yield the result of a command with and without the `!` of notebooks."""
    results = []
    for program in (f"!{sys.executable}", sys.executable):
        command = f"{program} -c 'print(1)'"
        process = subprocess.run(command, shell=True, capture_output=True, check=False)  # noqa: S602  a shell is measured
        results.append(f"status {process.returncode}")
    yield "nested-shell-escape", results[0], results[1], "a command that a shell runs"


def parsed_settings() -> Iterator[Row]:
    """Yield what torch's parser of allocator settings answers, on any machine."""
    for wrong, right in (
        ("max_split_size_mb=128", "max_split_size_mb:128"),
        ("max_split_size_mb:10", "max_split_size_mb:20"),
        ("expandable_segments:true", "expandable_segments:True"),
        ("garbage_collection_threshold:80", "garbage_collection_threshold:0.8"),
    ):
        results = (run(_PARSE.format(value=value)) for value in (wrong, right))
        yield "alloc-conf-unknown", next(results), next(results), f"{wrong} and {right}"


def gpu_settings() -> Iterator[Row]:
    """Yield what settings do on a GPU: with wrong options, wrong names, and set too late."""
    for wrong, right in (
        ("max_split_size:128", "max_split_size_mb:128"),
        ("expandable_segment:True", "expandable_segments:True"),
    ):
        results = (run(_ALLOCATE, PYTORCH_CUDA_ALLOC_CONF=value) for value in (wrong, right))
        yield "alloc-conf-unknown", next(results), next(results), f"{wrong} and {right}"
    for name in ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_ALLOC_CONF"):
        options = {"variable": name, "value": "expandable_segments:True"}
        right = run(_ALLOCATOR.format(before="", variable="PYTORCH_CUDA_ALLOC_CONF", value="expandable_segments:True"))
        yield "alloc-conf-unknown", run(_ALLOCATOR.format(before="", **options)), right, name
    for before, when in (("import torch", "after the import"), (_USE, "after a tensor on the GPU")):
        for value in ("expandable_segments:True", "backend:cudaMallocAsync"):
            options = {"variable": "PYTORCH_CUDA_ALLOC_CONF", "value": value}
            results = (run(_ALLOCATOR.format(before=code, **options)) for code in (before, ""))
            yield "env-set-too-late", next(results), next(results), f"{value} {when}, and before"
    counted = "import torch; torch.cuda.is_available()"
    for before, when in (("import torch", "the import"), (counted, "is_available()"), (_USE, "a tensor on the GPU")):
        results = (run(_DEVICES.format(before=code)) for code in (before, ""))
        yield "env-set-too-late", next(results), next(results), f'CUDA_VISIBLE_DEVICES="" after {when}, and before'
    for before, when in (("import torch", "the import"), (_USE, "a tensor on the GPU")):
        results = (run(_BLOCKING.format(before=code)) for code in (before, ""))
        yield "env-set-too-late", next(results), next(results), f"CUDA_LAUNCH_BLOCKING=1 after {when}, and before"


def monitoring() -> Iterator[Row]:
    """Yield what nvidia-smi answers to fields and options that don't exist, and to those that do."""
    for wrong, right in (
        (["--query-gpu=gpu.utilization", "--format=csv"], ["--query-gpu=utilization.gpu", "--format=csv"]),
        (["--query-gpu=memory.used", "--format=json"], ["--query-gpu=memory.used", "--format=csv"]),
        (["--query-compute-apps=memory.used", "--format=csv"], ["--query-compute-apps=used_memory", "--format=csv"]),
        (["--interval=5"], ["-L"]), (["-n", "1"], ["-L"]), (["memory"], ["-L"]),
        (["--query-gpu=Name", "--format=csv"], ["--query-gpu=name", "--format=csv"]),
        (["--query-gpu=name, memory.used", "--format=csv"], ["--query-gpu=name,memory.used", "--format=csv"]),
    ):  # fmt: skip
        yield "unknown-nvidia-smi-field", _nvidia_smi(wrong), _nvidia_smi(right), " ".join(wrong)


def _nvidia_smi(arguments: list[str]) -> str:
    try:
        process = subprocess.run(
            ["nvidia-smi", *arguments],  # noqa: S607  the one in the PATH is meant
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return str(error)
    answer = " ".join((process.stdout + process.stderr).split())
    return f"exit code {process.returncode}: {answer[:120]}"


def main() -> None:
    """Print the rows of a device."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    print("| rule | wrong | right | what was run |\n|---|---|---|---|")
    measurements = [escapes, parsed_settings, *((monitoring, gpu_settings) if device == "cuda" else ())]
    for measurement in measurements:
        for row in measurement():
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
