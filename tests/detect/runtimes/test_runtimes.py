from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomph.detect import append_litert_metadata, is_exported, open_exported, silent_stderr
from oomph.detect.runtimes._exported_file import parse_entries
from oomph.detect.runtimes._litert import _read_entries
from oomph.errors import MissingFile


def test_formats_are_recognized_by_the_suffix() -> None:
    assert [is_exported(Path(name)) for name in ("a.ONNX", "a.pte", "a.tflite", "a.pt")] == [True, True, True, False]


@pytest.mark.parametrize("name", ["x.onnx", "x.pte", "x.tflite"])
def test_a_missing_file_is_one_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"there is no file '.*'; check the path"):
        open_exported(tmp_path / name)


def test_metadata_after_a_litert_model_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    file, model = tmp_path / "x.tflite", bytes(range(256)) * 10
    file.write_bytes(model)
    assert _read_entries(file) == {}
    append_litert_metadata(file, {"names": '["cat", "dög"]'})
    assert file.read_bytes().startswith(model)
    assert _read_entries(file) == {"names": '["cat", "dög"]'}


def test_metadata_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "x.tflite"
    file.write_bytes(b"model")
    append_litert_metadata(file, {"format": " " * 2**21})
    assert file.stat().st_size < 2**16
    assert _read_entries(file) == {}


@pytest.mark.parametrize("text", ["", "[]", '"format"', '{"format": 1}', "{"])
def test_metadata_of_another_form_is_none(text: str) -> None:
    assert parse_entries(text) == {}


def test_messages_of_native_libraries_are_dropped_and_later_ones_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with silent_stderr():
        os.write(2, b"noise\n")
        sys.stderr.write("noise\n")
    os.write(2, b"error\n")
    assert capfd.readouterr().err == "error\n"


def test_a_closed_standard_error_is_no_problem() -> None:
    code = "import os; os.close(2); from oomph.detect import silent_stderr\nwith silent_stderr(): print('ran')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"ran\n"
