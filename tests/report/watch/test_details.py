from __future__ import annotations

import time
from pathlib import Path

from oomph.monitor import ProcessUse, RunProgress
from oomph.report.watch._details import process_details, progress_line
from oomph.units import GIB

from .readings import machine_reading, process


def progress(**more: object) -> RunProgress:
    fields: dict[str, object] = {"step": 1240, "loss": 0.4123, "step_seconds": 0.31, "micro_batches": 4, **more}
    return RunProgress(Path("runs/run.jsonl"), time.time(), **fields)  # type: ignore[arg-type]


def test_progress_is_one_line() -> None:
    line = progress_line(progress(retries=2, findings=("Waiting for data", "b", "c")))
    assert line == (
        "Record run.jsonl: step 1240, loss 0.412, 310 ms/step, 4 micro-batches, 2 retries, Waiting for data; b"
    )


def test_progress_without_steps_and_with_silence() -> None:
    assert progress_line(RunProgress(Path("r"), time.time() - 125)) == "Record r: silent for 2 min, no problem found"


def test_progress_with_a_loss_that_is_no_number() -> None:
    assert "loss nan, " in progress_line(progress(loss=float("nan")))


def test_details_are_memory_progress_command_and_children() -> None:
    use = process(42, 4 * GIB, 10, {0: 11 * GIB, 1: GIB})
    infos = machine_reading(use).infos
    memory, run, command, children = process_details(use, infos, progress(), "+1 MiB/min")
    assert memory == "python 42, RAM 4.98 GiB in 11 processes (+1 MiB/min), GPU 0 11 GiB, GPU 1 1 GiB"
    assert run.startswith("Record run.jsonl: step 1240")
    assert command.endswith(" by ann: /opt/bin/python train.py --batch 64")
    assert children.startswith("children: python 420 100 MiB, python 421 100 MiB")
    assert children.endswith("and 2 more")


def test_a_process_outside_the_container_says_so() -> None:
    memory, note = process_details(ProcessUse(9, "?", (), {0: GIB}), {}, None, "")
    assert memory == "outside container 9, GPU 0 1 GiB"
    assert "only the driver lists it" in note
