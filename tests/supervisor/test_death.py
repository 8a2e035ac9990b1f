"""Explanations of ends: from the status, the signals, the kernel's counts and the output."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from oomph.failures import FailureKind
from oomph.monitor import Explanation, Recorder
from oomph.supervisor import StopReason, _kernel_kills
from oomph.supervisor._death import ExitStatus, explain_end
from oomph.supervisor._kernel_kills import KernelKills, KillCounter
from oomph.supervisor._streams import WrittenFile
from oomph.supervisor._supervision import CommandEnd

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def explained(tmp_path: Path, output: str, end: CommandEnd) -> Explanation | None:
    log = tmp_path / "output.log"
    log.write_text(output)
    record = tmp_path / "record.jsonl"
    Recorder(record).close()
    return explain_end(replace(end, files=(WrittenFile(log, 0),)), record, None)


def kinds(tmp_path: Path, output: str, end: CommandEnd) -> list[FailureKind] | None:
    explanation = explained(tmp_path, output, end)
    return None if explanation is None else [finding.kind for finding in explanation.findings]


def exited(code: int) -> CommandEnd:
    return CommandEnd(code << 8, 1.0)


def killed(number: int, *sent: int) -> CommandEnd:
    return CommandEnd(number, 1.0, signals=sent)


@pytest.mark.parametrize(
    ("output", "end", "kind"),
    [
        (OUT_OF_MEMORY, exited(1), FailureKind.CUDA_OOM),
        ("MemoryError\n", exited(1), FailureKind.MEMORY_ERROR),
        ("", killed(signal.SIGKILL), FailureKind.KILLED),
        ("", exited(137), FailureKind.KILLED),
        ("", killed(signal.SIGSEGV), FailureKind.CRASH),
        ("", killed(signal.SIGABRT), FailureKind.ABORTED),
        ("terminate called: std::bad_alloc\n", killed(signal.SIGABRT), FailureKind.BAD_ALLOC),
        ("", killed(signal.SIGTERM), FailureKind.STOPPED),
        (OUT_OF_MEMORY, killed(signal.SIGINT, signal.SIGINT), FailureKind.STOPPED),
        ("KeyboardInterrupt\n", exited(1), FailureKind.STOPPED),
    ],
)
def test_the_end_is_explained(output: str, end: CommandEnd, kind: FailureKind, tmp_path: Path) -> None:
    found = kinds(tmp_path, output, end)
    assert found is not None
    assert found[0] is kind


def test_a_good_end_needs_no_explanation(tmp_path: Path) -> None:
    assert kinds(tmp_path, OUT_OF_MEMORY, exited(0)) is None


def test_a_stop_by_the_supervisor_comes_first(tmp_path: Path) -> None:
    stop = StopReason(FailureKind.HOST_FULL, "200 MiB was left.")
    assert kinds(tmp_path, "KeyError: 'x'\n", CommandEnd(0, 1.0, stop)) == [
        FailureKind.HOST_FULL,
        FailureKind.PYTHON_ERROR,
    ]


def test_the_kernels_counts_explain_a_kill(tmp_path: Path) -> None:
    kills = KernelKills(machine=1)
    assert kinds(tmp_path, "", replace(killed(signal.SIGKILL), kills=kills)) == [FailureKind.OOM_KILL]
    assert kinds(tmp_path, "", replace(killed(signal.SIGSEGV), kills=kills)) == [FailureKind.CRASH]


def test_kills_of_earlier_hours_explain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now, count = [0.0], [7]
    monkeypatch.setattr("oomph.supervisor._kernel_kills.time.monotonic", lambda: now[0])
    monkeypatch.setattr(_kernel_kills, "_count", lambda: count[0])
    counter = KillCounter()
    count[0] = 9
    assert counter.recent == 2
    for _ in range(20):
        now[0] += 0.5
        counter.read()
    assert counter.recent == 0
    count[0] = 10
    assert counter.recent == 1


def test_an_error_after_one_that_was_survived_is_the_cause(tmp_path: Path) -> None:
    later = "Traceback (most recent call last):\n  File 'x'\nKeyError: 'boxes'\n"
    found = kinds(tmp_path, f"caught: {OUT_OF_MEMORY}retrying\n{later}", exited(1))
    assert found == [FailureKind.PYTHON_ERROR, FailureKind.CUDA_OOM]


SURVIVED = f"{OUT_OF_MEMORY}skipping the batch\n" + "".join(f"Epoch {n}: loss 0.{n}\n" for n in range(10, 210))


@pytest.mark.parametrize(
    ("output", "end", "kind"),
    [
        ("", killed(signal.SIGSEGV), FailureKind.CRASH),
        ("", killed(signal.SIGKILL), FailureKind.KILLED),
        ("Traceback (most recent call last):\n  File 'x'\nKeyError: 'boxes'\n", exited(1), FailureKind.PYTHON_ERROR),
    ],
    ids=["crash", "kill -9", "another error"],
)
def test_an_error_that_was_survived_for_long_is_not_the_cause(
    output: str, end: CommandEnd, kind: FailureKind, tmp_path: Path
) -> None:
    explanation = explained(tmp_path, SURVIVED + output, end)
    assert explanation is not None
    assert explanation.failure is not None
    assert explanation.failure.kind is kind
    assert FailureKind.CUDA_OOM in [finding.kind for finding in explanation.findings if finding.was_survived]


@pytest.mark.parametrize(
    "rest",
    [
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\nFrobError: not nicated\n',
        "epoch 1 step 4 loss 0.5\nepoch 1 step 5 loss 0.4\nepoch 1 step 6 loss 0.4\nbad config\n",
    ],
    ids=["its own traceback", "progress"],
)
def test_what_came_after_a_caught_error_is_the_cause_even_if_unknown(rest: str, tmp_path: Path) -> None:
    explanation = explained(tmp_path, OUT_OF_MEMORY + rest, exited(1))
    assert explanation is not None
    assert explanation.failure is None
    assert [finding.was_survived for finding in explanation.findings] == [True]


@pytest.mark.parametrize(
    "rest",
    [
        (
            "\nDuring handling of the above exception, another exception occurred:\n\n"
            'Traceback (most recent call last):\n  File "a.py", line 3, in f\nFrobError: wrapped\n'
        ),
        (
            'Traceback (most recent call last):\n  File "launch.py", line 3, in f\n'
            "subprocess.CalledProcessError: Command '['python', 'a.py']' returned non-zero exit status 1.\n"
        ),
        "  3%|3         | 3/100 [00:04<02:00, 1.2s/it, loss=0.3]\n" * 5,
        "epoch 1 step 4 loss 0.5\n",
    ],
    ids=["its wrapper", "its launcher", "redrawn bars", "a line of another rank"],
)
def test_what_follows_from_running_out_of_memory_is_not_the_cause(rest: str, tmp_path: Path) -> None:
    assert kinds(tmp_path, OUT_OF_MEMORY + rest, exited(1)) == [FailureKind.CUDA_OOM]


def test_an_unknown_error_after_one_that_was_survived_is_shown(tmp_path: Path) -> None:
    explanation = explained(
        tmp_path, SURVIVED + "Traceback (most recent call last):\n  File 'x'\nOddError: 42\n", exited(1)
    )
    assert explanation is not None
    assert explanation.failure is None
    assert explanation.verdict == "unknown"
    assert explanation.unrecognized is not None
    assert "OddError: 42" in explanation.unrecognized
    assert "out of memory" not in explanation.unrecognized


def test_consequences_after_an_out_of_memory_error_are_not_the_cause(tmp_path: Path) -> None:
    later = "subprocess.CalledProcessError: Command died with <Signals.SIGABRT: 6>.\nAborted (core dumped)\n"
    found = kinds(tmp_path, OUT_OF_MEMORY + later, exited(1))
    assert found is not None
    assert found[0] is FailureKind.CUDA_OOM


def test_statuses_as_shells_report_them() -> None:
    for status, code, text in (
        (0, 0, "exit code 0"),
        (3 << 8, 3, "exit code 3"),
        (9, 137, "SIGKILL"),
        (15, 143, "SIGTERM"),
    ):
        assert (ExitStatus.of(status).shell_code, str(ExitStatus.of(status))) == (code, text)
    assert str(ExitStatus.of(35)) == "signal 35"
