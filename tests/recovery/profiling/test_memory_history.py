"""Memory snapshots of out-of-memory errors; a stand-in takes the place of torch's recorder, which needs a GPU."""

from __future__ import annotations

import errno
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery import Guard, _guard
from oomph.recovery.profiling import _memory_history, record_memory_history

from ..faults import FaultIn
from ..nets import plain_batch, plain_guard, plain_net

CUDA = torch.device("cuda")


class FakeRecorder:
    """Stands in for torch's recorder of CUDA memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self.calls: list[tuple[str | None, dict[str, Any]]] = []
        self.snapshots = 0
        self.error: Exception | None = None
        self.watched: list[weakref.ref[Tensor]] = []
        self.alive: list[bool] = []
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: self.enabled, raising=False)
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", self.record)
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", self.snapshot)

    def record(self, enabled: str | None = "all", **options: Any) -> None:
        self.calls.append((enabled, options))
        self.enabled = enabled is not None

    def snapshot(self) -> dict[str, Any]:
        self.snapshots += 1
        self.alive.append(all(tensor() is not None for tensor in self.watched))
        if self.error is not None:
            raise self.error
        return {"segments": [], "device_traces": [[]]}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> FakeRecorder:
    return FakeRecorder(monkeypatch)


@pytest.fixture
def on_gpu(recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch) -> FakeRecorder:
    """Let guards on the CPU record as if they were on a GPU."""
    monkeypatch.setattr(_guard, "record_memory_history", lambda folder, _: record_memory_history(folder, CUDA))
    return recorder


def test_recording_is_bounded_and_ends_with_the_guard(recorder: FakeRecorder, tmp_path: Path) -> None:
    history = record_memory_history(tmp_path / "new" / "folder", CUDA)
    assert (tmp_path / "new" / "folder").is_dir()
    ((enabled, options),) = recorder.calls
    assert enabled == "all"
    assert options == {"context": "alloc", "stacks": "python", "max_entries": 30_000}
    history.close()
    history.close()
    assert recorder.calls[1:] == [(None, {})]


def test_recording_of_the_user_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorder = FakeRecorder(monkeypatch, enabled=True)
    history = record_memory_history(tmp_path, CUDA)
    assert history.dump(3) == tmp_path / "step-3-rank-0.pickle"
    history.close()
    assert recorder.calls == []


def test_files_are_named_by_step_and_rank_and_never_replaced(recorder: FakeRecorder, tmp_path: Path) -> None:
    del recorder
    history = record_memory_history(tmp_path, CUDA)
    (tmp_path / "step-7-rank-0-2.pickle").write_text("of an earlier run")
    assert [history.dump(7), history.dump(7), history.dump(8)] == [
        tmp_path / "step-7-rank-0.pickle",
        tmp_path / "step-7-rank-0-3.pickle",
        tmp_path / "step-8-rank-0.pickle",
    ]
    assert (tmp_path / "step-7-rank-0-2.pickle").read_text() == "of an earlier run"
    snapshot = pickle.loads((tmp_path / "step-8-rank-0.pickle").read_bytes())  # noqa: S301  written above
    assert snapshot["device_traces"] == [[]]


def test_few_files_are_written(recorder: FakeRecorder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = record_memory_history(tmp_path, CUDA)
    paths = [history.dump(step) for step in range(20)]
    assert sum(path is not None for path in paths) == len(list(tmp_path.iterdir())) == 5
    assert recorder.snapshots == 5
    assert caplog.messages[-1].endswith("step-4-rank-0.pickle. It is the last of 5.")


@pytest.mark.parametrize("error", [RuntimeError("no history"), MemoryError()])
def test_a_snapshot_that_fails_is_a_warning(
    recorder: FakeRecorder, tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    history = record_memory_history(tmp_path, CUDA)
    recorder.error = error
    assert history.dump(1) is None
    assert f"could not be written to {tmp_path}: {type(error).__name__}" in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_a_warning(
    on_gpu: FakeRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_memory_history, "write_atomically", write)
    guard = plain_guard(snapshot=tmp_path)
    with FaultIn("addmm", times=1):
        assert guard.step(plain_batch()).retries == 1
    assert "No space left on device" in caplog.text
    assert on_gpu.snapshots == 1


def test_folder_that_is_a_file_is_rejected(recorder: FakeRecorder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"of snapshot= can't be created .*; name another one"):
        record_memory_history(tmp_path / "file", CUDA)
    assert recorder.calls == []


def test_cpu_has_nothing_to_record(recorder: FakeRecorder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    guard = plain_guard(snapshot=tmp_path / "folder")
    for seed in range(3):
        with FaultIn("addmm", times=1):
            assert guard.step(plain_batch(seed=seed)).retries == 1
    assert caplog.text.count("snapshot= records nothing") == 1
    assert recorder.calls == []
    assert not (tmp_path / "folder").exists()


def test_guard_without_a_folder_records_nothing(on_gpu: FakeRecorder) -> None:
    guard = plain_guard()
    with FaultIn("addmm", times=1):
        guard.step(plain_batch())
    guard.close()
    assert (on_gpu.calls, on_gpu.snapshots) == ([], 0)


class WatchedNet(nn.Module):
    """Shows the recorder its activation."""

    def __init__(self, recorder: FakeRecorder) -> None:
        super().__init__()
        self.first, self.last, self.recorder = nn.Linear(4, 6), nn.Linear(6, 2), recorder

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.sigmoid(self.first(x))
        self.recorder.watched = [weakref.ref(hidden)]
        return torch.tanh(self.last(hidden))


def test_snapshot_is_taken_while_the_attempt_is_in_memory(
    on_gpu: FakeRecorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = WatchedNet(on_gpu)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with oomph.Recorder(tmp_path / "run.jsonl") as record:
        guard = oomph.guard(
            model=net, optimizer=optimizer, loss=nn.functional.mse_loss, snapshot=tmp_path, recorder=record
        )
        guard.step(plain_batch())
        with FaultIn("tanh", times=1):
            assert guard.step(plain_batch()).retries == 1
    assert on_gpu.alive == [True]
    path = tmp_path / "step-1-rank-0.pickle"
    assert f"Wrote the memory snapshot {path}." in caplog.messages
    (event,) = [event for event in oomph.Record.load(tmp_path / "run.jsonl").events if event["event"] == "oom"]
    assert event["snapshot"] == str(path)
    assert path.is_file()


def adam_guard(folder: Path) -> Guard:
    net = plain_net()
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    return oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, snapshot=folder)


def test_updates_and_evaluations_write_snapshots_too(on_gpu: FakeRecorder, tmp_path: Path) -> None:
    guard = adam_guard(tmp_path)
    with FaultIn("addcdiv", times=1):
        assert guard.step(plain_batch()).retries == 1
    assert on_gpu.snapshots == 1
    with FaultIn("addmm", times=1):
        guard.evaluate([plain_batch()], lambda model, batch: model(batch[0]))
    assert on_gpu.snapshots == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0-rank-0.pickle", "step-1-rank-0.pickle"]


def test_record_of_a_retry_without_a_file_has_no_snapshot(tmp_path: Path) -> None:
    with oomph.Recorder(tmp_path / "run.jsonl") as record:
        guard = plain_guard(recorder=record)
        with FaultIn("addmm", times=1):
            guard.step(plain_batch())
    (event,) = [event for event in oomph.Record.load(tmp_path / "run.jsonl").events if event["event"] == "oom"]
    assert "snapshot" not in event
