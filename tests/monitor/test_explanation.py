from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

import oomph
from oomph.errors import MissingFile
from oomph.failures import FailureKind
from oomph.monitor import Recorder, explain_stream
from oomph.units import GIB

TEXT = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity)"


def test_text_path_and_stream_give_the_same_explanation(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text(TEXT)
    explanation = oomph.explain(TEXT)
    assert (
        explanation == oomph.explain(file) == oomph.explain(str(file)) == explain_stream(io.BytesIO(TEXT.encode()), "x")
    )
    assert (explanation.verdict, explanation.findings[0].kind) == ("memory", FailureKind.CUDA_OOM)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "latin-1"])
def test_other_encodings_are_read(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_bytes(("Größe\n" + TEXT + "\n").encode(encoding))
    assert oomph.explain(file).findings[0].kind is FailureKind.CUDA_OOM


def test_single_word_is_a_path_unless_it_is_recognized() -> None:
    assert oomph.explain("MemoryError").findings[0].kind is FailureKind.MEMORY_ERROR
    with pytest.raises(MissingFile, match=r"there is no file 'train\.log'"):
        oomph.explain("train.log")
    with pytest.raises(MissingFile):
        oomph.explain(Path("no such log"))


def test_huge_word_and_empty_text_are_handled() -> None:
    with pytest.raises(MissingFile) as caught:
        oomph.explain("x" * 100_000)
    assert len(str(caught.value)) < 200
    assert oomph.explain("\0 \0").verdict == "unknown"
    assert oomph.explain("").verdict == "unknown"


def test_verdict_is_one_word() -> None:
    assert (
        oomph.explain("RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)").verdict == "not memory"
    )
    assert oomph.explain("step 3 loss: nan\n").verdict == "numerics"
    unknown = oomph.explain("RuntimeError: the frobnicator is open")
    assert (unknown.verdict, unknown.unrecognized) == ("unknown", "RuntimeError: the frobnicator is open")


class Pipe(io.RawIOBase):
    """A pipe that delivers a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._stream, self._size = io.BytesIO(data), size

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(min(size, self._size))


def test_all_of_a_long_log_is_read() -> None:
    line = b"read the images of shard 3\n"
    data = line * 100_000 + f"{TEXT}\n".encode() + line * 100_000
    explanation = explain_stream(io.BytesIO(data), "big.log")
    assert explanation.findings[0].kind is FailureKind.CUDA_OOM
    assert explanation.facts == ()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("size", [3, 4097])
def test_pipe_gives_the_same_explanation(encoding: str, size: int) -> None:
    text = "größe 3\n" * 300 + TEXT + "\n" + "größe 4\n" * 300
    data = text.encode(encoding)
    assert explain_stream(Pipe(data, size), "x") == oomph.explain(text)  # type: ignore[arg-type]


def test_healthy_log_has_no_error(tmp_path: Path) -> None:
    healthy = oomph.explain("epoch 1 loss 0.3 val_error: 0.1\nepoch 2 loss 0.2, 0 errors\nsaved\n")
    assert (healthy.verdict, healthy.findings, healthy.unrecognized) == ("no error", (), None)
    assert oomph.explain("epoch 1\nTraceback (most recent call last):\n  File 'x'\n").verdict == "unknown"
    file = tmp_path / "model.pt"
    file.write_bytes(bytes(range(256)) * 50)
    binary = oomph.explain(file)
    assert (binary.verdict, binary.has_text) == ("unknown", False)


def write_record(file: Path, available: int) -> None:
    recorder = Recorder(file)
    recorder.event("prediction", allocated=4 * GIB, reserved=5 * GIB)
    recorder.step({"step": 1, "peak": int(4.1 * GIB), "seconds": 0.1})
    sample = {"ram_total": 64 * GIB, "ram_available": available, "rss": 60 * GIB, "children": 8}
    recorder.sample({**sample, "gpus": [{"index": 0, "total": 8 * GIB, "free": 2 * GIB}]})
    os.close(recorder._file or 0)
    recorder._file = None


def test_killed_run_is_explained_by_its_last_samples(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    write_record(file, GIB)
    # The process that wrote it must have ended.
    file.write_text(file.read_text().replace(f'"pid":{os.getpid()}', '"pid":999999999'))
    explanation = oomph.explain(file)
    assert (explanation.source, explanation.verdict, explanation.findings[0].kind) == (
        "record",
        "memory",
        FailureKind.OOM_KILL,
    )
    facts = "\n".join(explanation.facts)
    assert "stops without an end" in facts
    assert "Host memory was at most 98% full: 63 GiB of 64 GiB (RAM)." in facts
    assert "GPU 0 was at most 75% full: 6 GiB of 8 GiB." in facts
    assert "Predicted allocated: 4 GiB; measured: 4.1 GiB (+2.5%)." in facts


def test_record_of_a_running_process_has_not_stopped(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    write_record(file, GIB)
    explanation = oomph.explain(file)
    assert explanation.findings == ()
    assert "is still being written" in explanation.facts[0]


def test_on_the_cpu_the_rss_is_compared_with_its_prediction(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run.jsonl") as recorder:
        recorder.event("prediction", allocated=GIB, reserved=GIB, host=4 * GIB, target="cpu")
        recorder.step({"step": 1, "peak": int(4.1 * GIB)})
        recorder.sample({"rss": 4 * GIB})
    facts = "\n".join(oomph.explain(tmp_path / "run.jsonl").facts)
    assert "Predicted host: 4 GiB; measured: 4.1 GiB (+2.5%)." in facts
    assert "Predicted allocated" not in facts
