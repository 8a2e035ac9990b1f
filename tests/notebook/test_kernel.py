"""Notebooks in a real kernel of Jupyter: memory comes back, objects are HTML, output is bounded."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from oomph.units import MIB

from .kernels import Kernel, start_kernel

pytestmark = pytest.mark.medium
REPO = Path(__file__).parents[2]

# `train` holds 768 MiB in a local variable when memory runs out; the limit leaves room for that once, not twice.
TRAINING = """
import oomph, os, resource, signal, threading, torch
from torch import nn
BLOCK = 768 * 2**20 // 4

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def train():
    activations = torch.ones(BLOCK)
    return activations + torch.ones(2**40)

def set_limit():
    mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 1200 * 2**20, resource.RLIM_INFINITY))

def lift_limit():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

model = nn.Linear(64, 1)
guard = oomph.guard(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), loss=nn.functional.mse_loss)
batch = torch.ones(256, 64), torch.ones(256, 1)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with start_kernel(tmp_path_factory.mktemp("notebook")) as kernel:
        assert kernel.run(TRAINING).error == ""
        yield kernel


@pytest.fixture
def limit(kernel: Kernel) -> Iterator[None]:
    """The limit on memory, and no extension from an earlier test."""
    kernel.run("set_limit()")
    yield
    kernel.run("lift_limit(); block = None")
    kernel.run("%unload_ext oomph")


def resident(kernel: Kernel) -> int:
    return int(kernel.run("print(resident())").text)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and limits the address space")
@pytest.mark.usefixtures("limit")
def test_the_cell_after_an_out_of_memory_has_the_memory_back(kernel: Kernel) -> None:
    kernel.run("%load_ext oomph")
    before = resident(kernel)
    failed = kernel.run("train()")
    assert failed.error == "RuntimeError"
    assert "in train" in re.sub(r"\x1b\[[\d;]*m", "", "\n".join(failed.traceback))
    freed = re.search(r"Freed what its traceback kept alive: RAM (\d+) MiB", failed.text)
    assert freed is not None
    assert int(freed[1]) > 700
    assert abs(resident(kernel) - before) < 100 * MIB
    after = kernel.run("block = torch.ones(BLOCK)")
    assert after.error == ""
    assert "RAM +768 MiB" in after.text
    assert "largest new variables: block 768 MiB" in after.text


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and limits the address space")
@pytest.mark.usefixtures("limit")
def test_without_the_extension_the_next_cell_runs_out_of_memory(kernel: Kernel) -> None:
    before = resident(kernel)
    assert kernel.run("train()").error == "RuntimeError"
    assert resident(kernel) - before > 700 * MIB
    assert kernel.run("block = torch.ones(BLOCK)").error == "RuntimeError"


def test_objects_are_html_and_text(kernel: Kernel) -> None:
    data = kernel.run("oomph.explain('RuntimeError: CUDA out of memory. Tried to allocate 2 GiB')").data
    assert data["text/html"].startswith("<pre style=")
    assert "The GPU ran out of memory." in data["text/html"]
    assert data["text/plain"].startswith("Explanation(source='log'")


def test_ctrl_c_stops_a_guarded_loop_and_the_guard_goes_on_afterwards(kernel: Kernel) -> None:
    pid = int(kernel.run("print(os.getpid())").text)
    handler = kernel.run("print(signal.getsignal(signal.SIGINT))").text

    def interrupt(text: str) -> None:
        if "started" in text:
            os.kill(pid, signal.SIGINT)

    loop = "guard.step(batch); print('started', flush=True)\nwhile True: guard.step(batch)"
    assert kernel.run(loop, interrupt).error == "KeyboardInterrupt"
    assert kernel.run("print(signal.getsignal(signal.SIGINT))").text == handler
    result = kernel.run("guard.step(batch)")
    assert result.error == ""
    assert "The step was completed." in result.data["text/html"]


def test_a_guard_in_a_thread_and_a_record_of_the_kernel(kernel: Kernel) -> None:
    output = kernel.run(
        """
with oomph.watch("run.jsonl", interval=0.05) as record:
    reports = []
    thread = threading.Thread(target=lambda: reports.append(guard.step(batch)))
    thread.start(); thread.join()
print(len(reports), reports[0].updated)
oomph.Record.load("run.jsonl")
"""
    )
    assert output.text == "1 True\n"
    assert "The Record shows no problem with this run." in output.data["text/html"]


@pytest.mark.large
def test_training_leaves_little_output(kernel: Kernel) -> None:
    command = kernel.run(f"!{sys.executable} -m oomph train --epochs 2 2>&1")
    in_process = kernel.run("from oomph.cli import run\nrun(['train', '--epochs', '2'])")
    for output in (command, in_process):
        assert len(re.findall(r"^epoch \d: loss", output.text, re.MULTILINE)) == 2
        assert len(output.text) < 5000
        assert output.messages < 40
        assert "\x1b[" not in output.text
        assert "text/html" not in output.data


@pytest.mark.large
def test_the_example_notebook_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    read: Any = nbformat.read
    notebook = read(REPO / "examples/notebooks/oom.ipynb", as_version=4)
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [str(cell.get("outputs", "")) for cell in notebook.cells]
    assert any("Freed what its traceback kept alive" in output for output in outputs)
    assert any("the memory is back" in output for output in outputs)
    assert any("text/html" in output for output in outputs)
