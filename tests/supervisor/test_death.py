"""Explanations of ends: from the status, the signals, the kernel's counts and the output."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from oomph.failures import FailureKind
from oomph.monitor import Recorder
from oomph.supervisor import StopReason
from oomph.supervisor._death import ExitStatus, KernelKills, explain_end
from oomph.supervisor._streams import WrittenFile
from oomph.supervisor._supervision import CommandEnd

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def kinds(tmp_path: Path, output: str, end: CommandEnd, kills: KernelKills | None = None) -> list[FailureKind] | None:
    log = tmp_path / "output.log"
    log.write_text(output)
    record = tmp_path / "record.jsonl"
    Recorder(record).close()
    complete = CommandEnd(end.status, 1.0, end.stop, end.signals, files=(WrittenFile(log, 0),))
    explanation = explain_end(complete, record, kills or KernelKills(), None)
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
    found = kinds(tmp_path, "", killed(signal.SIGKILL), KernelKills(machine=1))
    assert found == [FailureKind.OOM_KILL]
    assert kinds(tmp_path, "", killed(signal.SIGSEGV), KernelKills(machine=1)) == [FailureKind.CRASH]


def test_an_error_after_one_that_was_survived_is_the_cause(tmp_path: Path) -> None:
    later = "Traceback (most recent call last):\n  File 'x'\nKeyError: 'boxes'\n"
    found = kinds(tmp_path, f"caught: {OUT_OF_MEMORY}retrying\n{later}", exited(1))
    assert found == [FailureKind.PYTHON_ERROR, FailureKind.CUDA_OOM]


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
