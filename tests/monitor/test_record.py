from __future__ import annotations

import json
import math
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oomph
from oomph.errors import InvalidFile, MissingFile, UsageError
from oomph.monitor import Recorder, diagnose_record, load_record
from oomph.monitor._record import parse_record


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_record_is_read_back(file: Path) -> None:
    with Recorder(file) as recorder:
        recorder.step({"step": 1, "loss": 0.5, "micro_batches": 2})
        recorder.sample({"rss": 100, "gpus": [{"index": 0, "total": 8, "free": 4}]})
        recorder.event("oom", kind="cuda-out-of-memory", micro_batches=4)
    record = load_record(file)
    assert oomph.Record.load(file) == record
    assert (record.steps[0]["loss"], record.samples[0]["rss"]) == (0.5, 100)
    assert [event["event"] for event in record.events] == ["oom", "end"]
    assert record.events[0]["kind"] == "cuda-out-of-memory"
    assert (record.header["pid"], record.header["host"]) == (os.getpid(), socket.gethostname())
    assert (record.has_ended, record.damaged_lines, len(record.start_times)) == (True, 0, 1)


def test_lines_are_in_the_file_before_the_call_returns(file: Path) -> None:
    recorder = Recorder(file)
    recorder.step({"step": 1})
    record = load_record(file)
    assert len(record.steps) == 1
    assert not record.has_ended
    assert record.is_running


def test_nan_and_infinity_are_read_back(file: Path) -> None:
    with Recorder(file) as recorder:
        recorder.step({"loss": math.nan, "grad_norm": -math.inf})
    assert all("NaN" not in line for line in file.read_text().splitlines())
    step = load_record(file).steps[0]
    assert math.isnan(step["loss"])
    assert step["grad_norm"] == -math.inf


def test_numbers_of_numpy_and_torch_are_plain_numbers(file: Path) -> None:
    import numpy as np

    with Recorder(file) as recorder:
        recorder.step({"loss": torch.tensor(1.5), "seconds": np.float32(0.25), "micro_batches": np.int64(3)})
    assert dict(load_record(file).steps[0], t=0) == {"t": 0, "loss": 1.5, "seconds": 0.25, "micro_batches": 3}


def test_tensor_on_another_device_is_rejected(file: Path) -> None:
    with Recorder(file) as recorder, pytest.raises(UsageError, match=r"loss of a step is a Tensor; .*loss\.item\(\)"):
        recorder.step({"loss": torch.empty((), device="meta")})


def test_existing_record_is_continued(file: Path) -> None:
    with Recorder(file) as recorder:
        recorder.step({"step": 1})
    with Recorder(file) as recorder:
        recorder.step({"step": 2})
    record = load_record(file)
    assert [step["step"] for step in record.steps] == [1, 2]
    assert (len(record.start_times), record.header["resumed"]) == (2, True)


def test_record_continues_after_a_truncated_line(file: Path) -> None:
    with Recorder(file) as recorder:
        recorder.step({"step": 1})
    file.write_bytes(file.read_bytes()[:-5])
    assert load_record(file).damaged_lines == 1
    assert not load_record(file).has_ended
    with Recorder(file) as recorder:
        recorder.step({"step": 2})
    record = load_record(file)
    assert [step["step"] for step in record.steps] == [1, 2]
    assert (record.damaged_lines, record.has_ended) == (1, True)


def test_truncated_record_keeps_all_lines_before_the_cut(file: Path) -> None:
    with Recorder(file) as recorder:
        for number in range(30):
            recorder.step({"step": number})
    data = file.read_bytes()
    head = data.index(b"\n") + 1
    for cut in range(head, len(data)):
        record = parse_record(data[:cut], "x")
        assert [step["step"] for step in record.steps] == list(range(len(record.steps)))
        assert len(record.steps) >= min(data[:cut].count(b"\n") - 1, 30)


@given(st.binary(max_size=300))
def test_any_bytes_after_the_header_are_read_without_an_error(tail: bytes) -> None:
    head = json.dumps({"oomph": "record", "version": 1, "start_time": 1.0}).encode() + b"\n"
    parse_record(head + tail, "x")


NAMES = st.sampled_from(["gpus", "torch", "rss", "t", "total", "free", "index"])


def around(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return inner | st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)


ANYTHING = around(around(st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)))


@given(ANYTHING)
@settings(max_examples=60)
def test_any_json_is_diagnosed_without_an_error(value: object) -> None:
    lines = [
        {"oomph": "record", "version": 1, "start_time": 1.0},
        {"t": 1, "sample": value},
        {"t": 2, "sample": {"gpus": value, "torch": value, "rss": value}},
        {"t": 3, "step": value},
        {"t": 4, "event": "error", "kind": value, "text": value},
    ]
    diagnose_record(parse_record("".join(json.dumps(line) + "\n" for line in lines).encode(), "x"))


@pytest.mark.parametrize("content", [b"{}\n", b"hello\n", b"\xff\xfe\n", b'{"oomph": "machine"}\n'])
def test_other_files_are_never_appended_to(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(InvalidFile, match="is not a Record"):
        Recorder(file)
    with pytest.raises(InvalidFile, match="is not a Record"):
        load_record(file)
    assert file.read_bytes() == content


def test_unusable_paths_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no folder"):
        Recorder(tmp_path / "no" / "run.jsonl")
    with pytest.raises(UsageError, match="can't be written"):
        Recorder(tmp_path)
    with pytest.raises(MissingFile, match="there is no file"):
        load_record(tmp_path / "run.jsonl")
    with pytest.raises(InvalidFile, match="can't be read"):
        load_record(tmp_path)


def test_other_version_is_rejected(file: Path) -> None:
    file.write_text('{"oomph": "record", "version": 9, "start_time": 1}\n')
    with pytest.raises(InvalidFile, match="has version 9"):
        load_record(file)


def test_threads_do_not_mix_their_lines(file: Path) -> None:
    with Recorder(file) as recorder:

        def write(name: int) -> None:
            for number in range(100):
                recorder.event("x", name=name, number=number, text="y" * 200)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    record = load_record(file)
    assert record.damaged_lines == 0
    assert len(record.events) == 801


def test_fast_steps_are_thinned_except_notable_ones(file: Path) -> None:
    with Recorder(file) as recorder:
        for number in range(5000):
            recorder.step({"step": number, "loss": math.nan if number == 4321 else 1.0})
        for number in range(3):
            recorder.step({"step": number, "retries": 1})
    steps = load_record(file).steps
    assert [step["step"] for step in steps[:1000]] == list(range(1000))
    assert 4321 in [step["step"] for step in steps]
    assert sum("retries" in step for step in steps) == 3
    assert len(steps) < 2000


@pytest.mark.medium
def test_full_disk_loses_lines_but_not_the_run(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from oomph.monitor import Recorder\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "recorder = Recorder(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))\n"
        "for number in range(100): recorder.event('x', number=number)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "recorder.event('y'); recorder.close(); print('alive')\n"
    )
    file = tmp_path / "run.jsonl"
    process = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert process.stdout == "alive\n"
    assert process.stderr.count("are lost") == 1
    record = load_record(file)
    assert [event["event"] for event in record.events[-2:]] == ["y", "end"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


_VICTIM = """
import sys, time
import oomph
with oomph.watch(sys.argv[1], interval=0.05) as record:
    print("ready", flush=True)
    for number in range(10**9):
        record.step({"step": number, "seconds": 0.001, "loss": 1.0})
        time.sleep(0.005)
"""


@pytest.mark.medium
def test_record_is_readable_after_kill_9_at_a_random_time(tmp_path: Path) -> None:
    source = random.Random(0)  # noqa: S311  no secret
    files = [tmp_path / f"{number}.jsonl" for number in range(4)]
    victims = [subprocess.Popen([sys.executable, "-c", _VICTIM, str(file)], stdout=subprocess.PIPE) for file in files]
    for victim, file in zip(victims, files, strict=True):
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"ready\n"
        time.sleep(source.uniform(0.0, 0.2))
        killed = time.time()
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        check_killed(file, killed)


def check_killed(file: Path, killed: float) -> None:
    record = load_record(file)
    assert killed - record.last_time < 1
    assert not record.has_ended
    assert not record.is_running
    assert [step["step"] for step in record.steps] == list(range(len(record.steps)))
    with Recorder(file) as recorder:
        recorder.step({"step": len(record.steps)})
    assert load_record(file).steps[-1]["step"] == len(record.steps)


def test_reused_pid_is_not_running() -> None:
    created = psutil.Process().create_time()

    def is_running(**changes: object) -> bool:
        header = {"oomph": "record", "version": 1, "start_time": 1.0, "host": socket.gethostname()}
        fields = {**header, "pid": os.getpid(), "process_start_time": created, **changes}
        return parse_record(json.dumps(fields).encode() + b"\n", "x").is_running

    assert is_running()
    assert not is_running(process_start_time=created - 100)
    assert not is_running(host="elsewhere")


def test_missing_values_inside_a_field_are_kept(file: Path) -> None:
    with Recorder(file) as recorder:
        recorder.event("plan", plan={"micro_batch": None, "sizes": [None, 1]}, other=None)
    event = load_record(file).events[0]
    assert event["plan"] == {"micro_batch": None, "sizes": [None, 1]}
    assert "other" not in event
