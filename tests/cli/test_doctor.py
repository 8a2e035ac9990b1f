from __future__ import annotations

import copy
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from oomph.cli import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "machines" / "container.json"


def test_this_machine_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    diagnosis = json.loads(capsys.readouterr().out)
    assert diagnosis["oomph"] == "diagnosis"
    assert diagnosis["machine"]["memory"]["ram_total"]["value"] == psutil.virtual_memory().total
    assert diagnosis["healthy"] == (diagnosis["verdicts"] == [])


@pytest.mark.medium
def test_json_is_one_document_and_nothing_else() -> None:
    command = [sys.executable, "-m", "oomph", "doctor", "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    json.loads(process.stdout)
    assert process.stderr == ""


@pytest.mark.medium
def test_doctor_is_quick() -> None:
    # CPU time with the imports, because other tests may keep the cores busy, which doubles even that. Alone it is 0.6.
    code = "import sys, time; from oomph.cli import run; run(['doctor']); sys.stderr.write(str(time.process_time()))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(process.stderr) < 1.6


def test_other_machine_is_checked_from_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--machine", str(EXAMPLE)]) == 0
    output = capsys.readouterr().out
    assert "fails: /dev/shm has 64 MiB free of 64 MiB" in output
    assert "$ docker run --shm-size=" in output


def test_workers_and_batch_change_the_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor", "--machine", str(EXAMPLE), "--workers", "2", "--batch", "1MiB"])
    assert "/dev/shm has" not in capsys.readouterr().out


@pytest.mark.medium
def test_torch_is_imported_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--torch", "--json"]) == 0
    check = json.loads(capsys.readouterr().out)["machine"]["software"]["import_check"]
    assert check["torch_error"]["value"] == ""


def test_healthy_machine_gets_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = json.loads(EXAMPLE.read_text())
    machine = data["machine"]
    machine["shm"]["free"]["value"] = machine["shm"]["total"]["value"] = 64 * 1024**3
    machine["memory"]["swap_total"]["value"] = 8 * 1024**3
    machine["cgroups"]["memory"] = []
    machine["budget"]["bounds"] = [bound for bound in machine["budget"]["bounds"] if bound["name"] == "RAM"]
    file = tmp_path / "healthy.json"
    file.write_text(json.dumps(machine))
    run(["doctor", "--machine", str(file)])
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == "Healthy: oomph found no problem for training on this machine."


def is_one_sentence(process: subprocess.CompletedProcess[str]) -> bool:
    return process.returncode == 2 and process.stderr.count("\n") == 1 and "can't be opened" in process.stderr


def test_folder_name_that_is_too_long_is_one_short_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--checkpoints", "x" * 5000]) == 2
    message = capsys.readouterr().err
    assert "can't be opened" in message
    assert message.count("\n") == 1
    assert len(message) < 200


@pytest.mark.medium
def test_deleted_current_folder_is_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["sh", "-c", f"rmdir {gone}; exec {Path(sys.executable).parent}/oomph doctor"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=gone)
    assert is_one_sentence(process)


def test_escape_codes_in_a_file_are_not_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = json.loads(EXAMPLE.read_text())
    data["machine"]["disk"]["path"] = "/data\x1b]0;gotcha\x07\n\u202e"
    data["machine"]["disk"]["free"]["value"] = 5
    data["machine"]["environment"]["release"]["value"] = "\x1b[2J"
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(data))
    assert run(["doctor", "--machine", str(file)]) == 0
    output = capsys.readouterr().out
    assert "/data?]0;gotcha???" in output
    assert output.replace("\n", "").isprintable()


UNUSUAL: tuple[Any, ...] = ("\x1b[31m", "é\ud800", "9" * 500, "abc", -1, 2**62, 10**400, 1e308, 0, None, True, [], {})


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from paths(value, (*path, key))


@pytest.mark.medium
@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.large)])
def test_file_with_unusual_values_is_checked_or_rejected(
    stride: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = json.loads(EXAMPLE.read_text())["machine"]
    file = tmp_path / "odd.json"
    for path, value in zip(list(paths(whole))[::stride], itertools.cycle(UNUSUAL), strict=False):
        changed = copy.deepcopy(whole)
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        file.write_text(json.dumps(changed))
        assert run(["doctor", "--machine", str(file)]) in {0, 2}
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


def test_strings_in_a_file_reach_the_terminal_without_escape_codes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = EXAMPLE.read_text()
    for name in ('"/dev/shm"', '"/data"', '"linux"', '"2.13.0+cpu"', '"statvfs /data"', '"cgroup limit"'):
        text = text.replace(name, name[:-1] + '\\u001b[2J"')
    file = tmp_path / "odd.json"
    file.write_text(text)
    assert run(["doctor", "--machine", str(file)]) == 0
    assert "\x1b" not in capsys.readouterr().out
