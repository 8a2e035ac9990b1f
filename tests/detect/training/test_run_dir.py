from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from oomph.detect.training._run_dir import ReadOnlyRunDirectory, RunDirectory
from oomph.errors import InvalidFile, MissingFile


def state(number: int) -> dict[str, Any]:
    return {"number": number, "tensor": torch.full((4096,), float(number))}


def fail() -> NoReturn:
    raise RuntimeError("no font")


def row(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "loss": 3.0, "box_loss": 1.0, "obj_loss": 1.0, "cls_loss": 1.0, "lr": 0.1, "peak_bytes": 9}


def corrupt(path: Path) -> None:
    """Flip bits in the middle of a tensor, like a failing disk."""
    content = bytearray(path.read_bytes())
    for index in range(len(content) // 2, len(content) // 2 + 8):
        content[index] ^= 0x40
    path.unlink()  # it may be a hard link to the other checkpoint
    path.write_bytes(content)


def test_a_corrupt_checkpoint_is_noticed_and_the_previous_one_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir = RunDirectory(tmp_path)
    run_dir.save_state(state(1))
    run_dir.save_state(state(2))
    assert run_dir.load_state()["number"] == 2
    assert not caplog.messages
    corrupt(run_dir.state_file)
    torch.load(run_dir.state_file, weights_only=True)  # doesn't verify checksums
    assert run_dir.load_state()["number"] == 1
    (message,) = caplog.messages
    assert message.startswith("state.pt: ")
    assert message.endswith(". Resuming from the previous checkpoint, state-previous.pt.")
    corrupt(run_dir.previous_state_file)
    with pytest.raises(InvalidFile, match=r"no checkpoint in .* can be read \(state\.pt: .*; state-previous\.pt: "):
        run_dir.load_state()


def test_without_the_latest_checkpoint_the_previous_one_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir = RunDirectory(tmp_path)
    with pytest.raises(MissingFile):
        run_dir.load_state()
    run_dir.save_state(state(1))
    run_dir.save_state(state(2))
    run_dir.state_file.unlink()
    assert run_dir.load_state()["number"] == 1
    assert "state.pt is missing" in caplog.text


def test_other_files_are_not_checkpoints(tmp_path: Path) -> None:
    run_dir = RunDirectory(tmp_path)
    torch.save(state(1), run_dir.state_file)
    with pytest.raises(InvalidFile, match=r"state\.pt: not a checkpoint of this version of oomph"):
        run_dir.load_state()


def test_checkpoints_are_kept_on_file_systems_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def reject(*_: object, **__: object) -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", reject)
    run_dir = RunDirectory(tmp_path)
    for number in (1, 2, 3):
        run_dir.save_state(state(number))
    assert not caplog.messages
    assert run_dir.load_state()["number"] == 3
    run_dir.state_file.unlink()
    assert run_dir.load_state()["number"] == 2


def test_plots_of_epochs_are_drawn_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    run_dir = RunDirectory(tmp_path)
    run_dir.save_results([row(1)], 8, 10)
    first = (tmp_path / "results.png").read_bytes()
    run_dir.save_results([row(1), row(2)], 8, 10)
    assert (tmp_path / "results.csv").read_text().count("\n") == 3
    assert (tmp_path / "results.png").read_bytes() == first
    run_dir.draw_plots()
    assert (tmp_path / "results.png").read_bytes() != first
    assert (tmp_path / "memory.png").is_file()


def test_a_plot_that_fails_costs_a_warning_and_the_plot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    RunDirectory(tmp_path).save_plot("a.png", fail)
    assert caplog.messages == ["a.png could not be drawn: no font. Training continues."]
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_a_full_disk_costs_a_warning_and_the_plot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    run_dir = RunDirectory(tmp_path)
    monkeypatch.setattr("oomph.detect.training._run_dir.write_atomically", full)
    run_dir.save_plot("a.png", lambda: b"png")
    assert caplog.messages == ["a.png could not be written: No space left on device. Training continues."]


def test_ranks_other_than_the_first_write_only_their_record(tmp_path: Path) -> None:
    run_dir = ReadOnlyRunDirectory(tmp_path, rank=1)
    run_dir.save_state(state(1))
    run_dir.save_text("a.txt", "text")
    run_dir.save_results([{"epoch": 1}], 0, 0)
    run_dir.save_plot("a.png", fail)
    run_dir.draw_plots()
    assert [path.name for path in tmp_path.rglob("*")] == ["weights"]
    assert run_dir.record_file.name == "record-1.jsonl"


@pytest.mark.medium
def test_a_folder_that_is_not_writable_is_rejected_with_one_sentence(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "run")
    folders = (tmp_path, tmp_path / "run", tmp_path / "run" / "weights")
    code = """
import ctypes
from pathlib import Path
from oomph.cli._runs import create_run_dir
from oomph.detect.training._run_dir import RunDirectory
from oomph.errors import UsageError
ctypes.CDLL(None).setfsuid(65534)  # the user "nobody", because root may write anywhere
for create in (lambda: RunDirectory(Path("run")), lambda: create_run_dir("new").__enter__()):
    try:
        create()
    except UsageError as error:
        print(error)
"""
    for folder in folders:
        folder.chmod(0o555)
    try:
        command = [sys.executable, "-c", code]
        process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert [*process.stdout.splitlines(), *process.stderr.splitlines()] == [
        "'run' is not writable (Permission denied); make it writable, or start the run in another folder.",
        "'runs/train' is not writable (Permission denied); run oomph in a folder that is.",
    ]
