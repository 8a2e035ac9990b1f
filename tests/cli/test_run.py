"""`oomph run` with pipes and files: output, input, signals, exit codes, the Record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import oomph.cli
from oomph.monitor import MachineProbe, explain, load_record
from tests.supervisor.runs import OOMPH, first_line, is_alive, python, run, started, wait_for

pytestmark = pytest.mark.medium

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
FAIL = f"import sys; print('Traceback (most recent call last):', file=sys.stderr); sys.exit({OUT_OF_MEMORY!r})"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -15 $$"], 143),
        (["sh", "-c", "kill -2 $$"], 130),
        (["sh", "-c", "kill -11 $$"], 139),
        (["no-such-command"], 127),
        (["./not-executable"], 126),
        (["./no-shebang", "7"], 7),
        (["./no-program"], 126),
        (["/no/such/folder/x"], 127),
        (["/"], 126),
    ],
    ids=str,
)
def test_exit_codes_are_those_of_a_shell(command: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    for name, content in (("no-shebang", b"exit $1\n"), ("no-program", b"\x7fBIN\0\n")):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    assert run(["--", *command], tmp_path).returncode == code


def test_output_is_untouched_and_copied(tmp_path: Path) -> None:
    source = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300); sys.stderr.write('err\\n')"
    result = run(["--", *python(source)], tmp_path)
    assert result.stdout == bytes(range(256)) * 300
    assert b"err\n" in result.stderr
    folder = tmp_path / "runs/run/exp"
    log = (folder / "output.log").read_bytes()
    assert bytes(range(256)) * 300 in log
    assert b"err\n" in log
    assert (folder / "command.txt").read_text().startswith(sys.executable)
    record = load_record(folder / "record.jsonl")
    assert record.has_ended
    assert record.events[-2]["event"] == "exit"
    assert explain(folder / "record.jsonl").findings == ()


def test_options_of_the_command_are_its_own(tmp_path: Path) -> None:
    source = "import sys; print(sys.argv[1:])"
    arguments = ["--retry", "--json", "-h", "--", "--record", "x"]
    for separator in (["--"], []):
        result = run([*separator, *python(source), *arguments], tmp_path)
        assert result.stdout.decode().strip() == str(arguments)


def test_output_is_not_delayed(tmp_path: Path) -> None:
    source = "import time; print('first', flush=True); time.sleep(300)"
    with started([*OOMPH, "--", *python(source)], tmp_path) as process:
        assert first_line(process) == b"first\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


def test_merged_outputs_keep_their_order(tmp_path: Path) -> None:
    source = "import os\nfor n in range(500): os.write(1 + n % 2, b'%d\\n' % n)"
    result = subprocess.run(
        [*OOMPH, "--", *python(source)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    assert [line for line in result.stdout.split() if line.isdigit()] == [b"%d" % n for n in range(500)]


def test_input_is_passed_through(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    assert run(["--", "cat"], tmp_path, stdin=data).stdout == data


FAIL_ABOVE_8 = f"""
import os, sys
os.write(int(sys.argv[2]), b"batch %d\\n" % int(sys.argv[1]))
if int(sys.argv[1]) > 8:
    sys.exit({OUT_OF_MEMORY!r})
"""
SHOW_DESCRIPTORS = """
import os
for name in sorted(os.listdir("/proc/self/fd"), key=int):
    if os.path.exists(f"/proc/self/fd/{name}"):  # not that of the listing
        print(name)
"""


def test_file_descriptors_of_the_shell_reach_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAIL_ABOVE_8)
    oomph_run = " ".join(OOMPH)
    for words, expected in (
        (f"{oomph_run} -- cat <(echo hello) <(echo there)", b"hello\nthere\n"),
        (f"{oomph_run} -- sh -c 'echo x >&3' 3> file; cat file", b"x\n"),
        (
            f"{oomph_run} --retry --batch 16 -- {sys.executable} train.py {{batch}} 5 5> file; cat file",
            b"batch 16\nbatch 8\n",
        ),
    ):
        result = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, timeout=60, check=False)
        assert result.stdout == expected, result.stderr


def test_no_file_descriptor_of_oomph_reaches_the_command(tmp_path: Path) -> None:
    plain = subprocess.run([sys.executable, "-c", SHOW_DESCRIPTORS], capture_output=True, check=True)
    assert run(["--", *python(SHOW_DESCRIPTORS)], tmp_path).stdout == plain.stdout


def test_a_deleted_working_directory_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    words = f"cd gone && rmdir ../gone && {' '.join(OOMPH)} -- true"
    result = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert result.returncode == 2
    assert b"the working directory can't be used" in result.stderr
    assert b"Traceback" not in result.stderr


def test_a_full_disk_ends_no_retries(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAIL_ABOVE_8)
    script = f"ln -sf /dev/full runs/run/exp/command.txt; exec {sys.executable} train.py $1 1"
    result = run(["--retry", "--batch", "16", "--", "sh", "-c", script, "sh", "{batch}"], tmp_path)
    assert (result.returncode, result.stdout) == (0, b"batch 16\nbatch 8\n")
    assert b"The command is not written into runs/run/exp/command.txt: No space left on device." in result.stderr


def test_a_reader_that_stops_ends_the_command(tmp_path: Path) -> None:
    words = " ".join(OOMPH)
    result = subprocess.run(
        ["bash", "-c", f"{words} -- yes | head -n 2; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (result.stdout, result.stderr) == (b"y\ny\n141\n", b"")


@pytest.mark.parametrize("redirection", ["2>&1 >/dev/null", "2>&1"])
def test_the_exit_code_stays_if_nobody_reads_the_explanation(redirection: str, tmp_path: Path) -> None:
    words = f"{' '.join(OOMPH)} -- sh -c 'echo MemoryError; sleep 1; exit 3' {redirection} | true"
    result = subprocess.run(
        ["bash", "-c", f"{words}; echo ${{PIPESTATUS[0]}}"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert (result.stdout, result.stderr) == (b"3\n", b"")


def test_much_output_arrives_whole(tmp_path: Path) -> None:
    data = os.urandom(1_000_000) * 50
    (tmp_path / "data").write_bytes(data)
    result = run(["--", "cat", "data"], tmp_path)
    assert result.stdout == data
    assert (tmp_path / "runs/run/exp/output.log").read_bytes() == data


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on_once(number: signal.Signals, tmp_path: Path) -> None:
    source = (
        "import signal, sys, time\n"
        "got = []\n"
        f"signal.signal({number.value}, lambda number, _: got.append(number))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "print(got, flush=True)\n"
        "sys.exit(7)\n"
    )
    with started([*OOMPH, "--", *python(source)], tmp_path, stdin=subprocess.DEVNULL) as process:
        assert first_line(process) == b"ready\n"
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert (output.decode().strip(), process.returncode) == (str([number.value]), 7)


def test_a_stopped_supervisor_stops_and_continues_the_command(tmp_path: Path) -> None:
    source = "import os, time\nprint(os.getpid(), flush=True)\nwhile True: time.sleep(0.05)"
    with started([*OOMPH, "--", *python(source)], tmp_path, start_new_session=True) as process:
        pid = int(first_line(process))
        process.send_signal(signal.SIGTSTP)
        wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_SLEEPING)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    source = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    result = subprocess.run(
        ["nohup", *OOMPH, "--", *python(source)], cwd=tmp_path, capture_output=True, timeout=60, check=True
    )
    assert result.stdout == b"True\n"


def test_death_is_explained_and_recorded(tmp_path: Path) -> None:
    result = run(["--json", "result.json", "--", *python(FAIL)], tmp_path)
    error = result.stderr.decode()
    assert result.returncode == 1
    assert "oomph: The GPU ran out of memory." in error
    assert OUT_OF_MEMORY in error
    assert "What to do" in error
    steps = error.partition("What to do")[2].partition("Record:")[0].splitlines()
    # At most three pieces of advice, each with a line to run or to write.
    assert len([line for line in steps if line.strip()]) <= 6
    document = json.loads((tmp_path / "result.json").read_text())
    assert (document["oomph"], document["exit_code"], len(document["attempts"])) == ("run", 1, 1)
    assert document["attempts"][0]["failure"] == "cuda-out-of-memory"
    assert document["explanation"]["findings"][0]["kind"] == "cuda-out-of-memory"
    findings = explain(tmp_path / document["record"]).findings
    assert [finding.kind.value for finding in findings] == ["cuda-out-of-memory"]


def test_an_unknown_error_is_shown_without_an_explanation(tmp_path: Path) -> None:
    result = run(["--", *python("class OddError(Exception): pass\nraise OddError('42')")], tmp_path)
    assert b"oomph doesn't know its last error" in result.stderr
    assert b"OddError: 42" in result.stderr.partition(b"oomph: The command")[2]


def test_an_end_without_a_message_is_unknown_everywhere(tmp_path: Path) -> None:
    result = run(["--json", "result.json", "--record", "run.jsonl", "--", "sh", "-c", "exit 7"], tmp_path)
    assert b"exit code 7 after 0 s. oomph doesn't know its last error" in result.stderr
    assert json.loads((tmp_path / "result.json").read_text())["explanation"]["verdict"] == "unknown"
    explanation = explain(tmp_path / "run.jsonl")
    assert (explanation.verdict, explanation.findings) == ("unknown", ())
    assert explanation.unrecognized == "The command ended with exit code 7."


def test_arguments_may_be_any_bytes(tmp_path: Path) -> None:
    result = run(["--", "printf", "%s", os.fsdecode(b"caf\xe9")], tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"caf\xe9", b"")


def test_a_full_disk_of_oomph_is_not_that_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "run.log").symlink_to("/dev/full")
    with (
        (tmp_path / "errors").open("wb") as errors,
        started(
            [*OOMPH, "--record", "run.jsonl", "--", "sh", "-c", "echo hi; exit 3"], tmp_path, stderr=errors
        ) as process,
    ):
        assert process.wait(60) == 3
    text = (tmp_path / "errors").read_text()
    assert "oomph: The rest of the output is not copied into run.log: No space left on device." in text
    assert "exit code 3 after 0 s. oomph doesn't know its last error" in text


def test_advice_is_about_this_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAIL)
    flags = ["--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2", "--output_dir", "out"]
    result = run(["--", sys.executable, "train.py", *flags], tmp_path)
    assert "train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 4" in result.stderr.decode()


def test_success_is_silent(tmp_path: Path) -> None:
    result = run(["--", "true"], tmp_path, KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert (result.stdout, result.stderr) == (b"", b"")


def test_output_in_a_file_is_not_copied_and_survives_the_supervisor(tmp_path: Path) -> None:
    source = "import time\nfor n in range(10_000): print('line', n, flush=True); time.sleep(0.02)"
    output, record = tmp_path / "train.log", tmp_path / "runs/run/exp/record.jsonl"
    with output.open("wb") as file:
        file.write(b"before\n")
        file.flush()
        process = subprocess.Popen([*OOMPH, "--", *python(source)], cwd=tmp_path, stdout=file, stderr=file)
    pid = process.pid
    try:
        wait_for(lambda: b"line 5" in output.read_bytes() and load_record(record).samples)
        pid = next(child.pid for child in psutil.Process(process.pid).children())
        process.kill()
        process.wait()
        lines = output.read_bytes().count(b"\n")
        wait_for(lambda: output.read_bytes().count(b"\n") > lines + 10)
        assert output.read_bytes().startswith(b"before\n")
        watch = subprocess.run(
            [sys.executable, "-m", "oomph", "watch", str(pid), "--count", "1"], capture_output=True, check=True
        )
        assert b"process tree" in watch.stdout
        machine = MachineProbe()
        machine.read()
        assert pid in [member.pid for use in machine.processes for member in use.members]
        machine.close()
        assert not load_record(record).has_ended
    finally:
        os.kill(pid, signal.SIGKILL)


def test_the_end_of_a_file_is_explained_without_what_was_there_before(tmp_path: Path) -> None:
    for before, source, kind in (
        (OUT_OF_MEMORY, "raise KeyError('x')", "python-error"),
        ("KeyError: 'x'", FAIL, "cuda-out-of-memory"),
    ):
        (tmp_path / "train.log").write_text(f"{before}\n")
        with (tmp_path / "train.log").open("ab") as file:
            subprocess.run(
                [*OOMPH, "--json", "result.json", "--", *python(source)],
                cwd=tmp_path,
                stdout=file,
                stderr=file,
                check=False,
            )
        document = json.loads((tmp_path / "result.json").read_text())
        assert document["attempts"][0]["failure"] == kind
        assert document["output"] is None
        assert not list(tmp_path.glob("runs/run/*/output.log"))


def test_a_process_that_outlives_the_command_goes_on(tmp_path: Path) -> None:
    result = run(["--", "sh", "-c", "sleep 300 & echo $!; exit 5"], tmp_path)
    pid = int(result.stdout)
    assert result.returncode == 5
    assert f"left 1 process running: {pid}".encode() in result.stderr
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_orphans_become_no_zombies(tmp_path: Path) -> None:
    source = (
        "import os, subprocess, time\n"
        "for _ in range(5): subprocess.run(['sh', '-c', 'sleep 0.1 & true'])\n"
        "print('ready', flush=True)\n"
        "time.sleep(300)\n"
    )
    with started([*OOMPH, "--", *python(source)], tmp_path) as process:
        assert first_line(process) == b"ready\n"
        wait_for(lambda: len(psutil.Process(process.pid).children(recursive=True)) == 1)


def test_a_chosen_record_is_continued(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(["--record", "mine.jsonl", "--", "echo", "hi"], tmp_path).returncode == 0
    assert len(load_record(tmp_path / "mine.jsonl").start_times) == 2
    assert (tmp_path / "mine.log").read_bytes() == b"hi\nhi\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument"),
        (["--budget", "8GiB", "true"], "can't be limited"),
        (["--budget", "gpu=8GiB", "true"], "can't be limited"),
        (["--budget", "ram=lots", "true"], "is not a size"),
        (["--retry", "0", "true"], "--retry is '0'"),
        (["--batch", "64", "true"], "no {batch}"),
        (["--batch", "x", "echo", "{batch}"], "--batch is 'x'"),
        (["--retry", "--", "echo", "{batch}"], "no --batch"),
        (["--resume-args", "--resume", "--batch", "8", "echo", "{batch}"], "no {resume}"),
        (["--timeout-idle", "soon", "true"], "is not a duration"),
        (["--timeout-idle", "1.2.3", "true"], "is not a duration"),
        (["--timeout-idle", ".", "true"], "is not a duration"),
        (["--json", ".", "true"], "which is a folder"),
        (["--json", "file/result.json", "true"], "is not writable"),
        (["--record", "no/such/folder/x.jsonl", "true"], "there is no folder"),
        (["--record", "", "true"], "--record is '.'"),
        (["--json", "--", "true"], "--json has no file name"),
        (["--json", "x.jsonl", "--record", "x.jsonl", "true"], "both write 'x.jsonl'"),
        (["--json", "x.log", "--record", "x.jsonl", "true"], "both write 'x.log'"),
        (["--budget", "ram=0", "true"], "--budget is 'ram=0'"),
    ],
    ids=str,
)
def test_usage_errors(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert oomph.cli.run(["run", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_braces_are_text_without_batch(tmp_path: Path) -> None:
    assert run(["--", "echo", "{batch}", "{resume}", "{}"], tmp_path).stdout == b"{batch} {resume} {}\n"


def test_the_limits_of_supervision_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho contained\n")
    (tmp_path / "docker").chmod(0o755)
    result = run(["--", tmp_path / "docker", "run", "image"], tmp_path)
    notes = [line for line in result.stderr.decode().splitlines() if line.startswith("oomph: docker:")]
    assert len(notes) == 1
    assert "--memory" in notes[0]
