"""The folder of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from oomph.detect.training._run_dir import Keeper
from oomph.errors import InvalidFile, MissingFile


def state(number: int) -> dict[str, Any]:
    return {"number": number, "tensor": torch.full((4096,), float(number))}


def spoil(path: Path) -> None:
    """Flip bytes in the middle of a tensor, as a bad disk would."""
    whole = bytearray(path.read_bytes())
    for at in range(len(whole) // 2, len(whole) // 2 + 8):
        whole[at] ^= 0x40
    path.unlink()  # it may share its bytes with the one before
    path.write_bytes(whole)


def test_a_damaged_state_is_noticed_and_the_one_before_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(tmp_path)
    keeper.save_state(state(1))
    keeper.save_state(state(2))
    assert keeper.load_state()["number"] == 2
    assert not caplog.messages
    spoil(keeper.state_file)
    torch.load(keeper.state_file, weights_only=True)  # which sees nothing
    assert keeper.load_state()["number"] == 1
    assert caplog.messages == ["state.pt: it is damaged. The run goes on from the checkpoint before, state-before.pt."]
    spoil(keeper.before_file)
    with pytest.raises(InvalidFile, match=r"state\.pt: it is damaged; state-before\.pt: it is damaged"):
        keeper.load_state()


def test_a_state_that_is_gone_does_not_hide_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(tmp_path)
    with pytest.raises(MissingFile):
        keeper.load_state()
    keeper.save_state(state(1))
    keeper.save_state(state(2))
    keeper.state_file.unlink()
    assert keeper.load_state()["number"] == 1
    assert "state.pt is gone" in caplog.text


def test_states_are_kept_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    keeper = Keeper(tmp_path)
    for number in (1, 2, 3):
        keeper.save_state(state(number))
    assert not caplog.messages
    assert keeper.load_state()["number"] == 3
    keeper.state_file.unlink()
    assert keeper.load_state()["number"] == 2


def test_a_folder_that_may_not_be_written_to_is_refused_in_one_sentence(tmp_path: Path) -> None:
    Keeper(tmp_path / "run")
    places = (tmp_path, tmp_path / "run", tmp_path / "run" / "weights")
    code = """
import ctypes
from pathlib import Path
from oomph.cli._runs import claimed_folder
from oomph.detect.training._run_dir import Keeper
from oomph.errors import UsageError
ctypes.CDLL(None).setfsuid(65534)  # nobody's files: root may write anywhere
for begin in (lambda: Keeper(Path("run")), lambda: claimed_folder("new").__enter__()):
    try:
        begin()
    except UsageError as error:
        print(error)
"""
    for place in places:
        place.chmod(0o555)
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    finally:
        for place in places:
            place.chmod(0o755)
    told = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    begins = ["nothing can be written into 'run' (Permission denied); make it writable"]
    begins += ["nothing can be written into 'runs/train' (Permission denied); change into a folder"]
    assert len(told) == 2
    assert all(line.startswith(begin) for line, begin in zip(told, begins, strict=True))
