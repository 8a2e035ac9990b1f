"""`oomph run`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from .. import document
from ..errors import UsageError, quote
from ..files import write_atomically
from ..units import parse_size, parse_time, split_budget
from ._runs import RETRIES, create_run_dir, not_writable

if TYPE_CHECKING:
    from ..supervisor import RetryPolicy, RunFiles, RunResult

_RUNS = Path("runs/run")
_MAX_BATCH, _MAX_RETRIES = 10**9, 100
_MINUTE = 60.0


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND…", help="The command and its arguments, best after `--`.")
    ],
    record: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="FILE", help="Where the Record goes.", show_default="runs/run/exp/record.jsonl"),
    ] = None,
    retry: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="[N]",
            help="If it runs out of memory, start it again, smaller and from its checkpoint, up to N times.",
            show_default=f"no retries; {RETRIES} without a number",
        ),
    ] = None,
    batch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="N", help="Value of {batch} in the command at the first start.", show_default=False),
    ] = None,
    resume_args: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="TEXT", help="Value of {resume} in the command when it is retried.", show_default=False),
    ] = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="ram=SIZE", help="Stop it when it uses more RAM.", show_default="no limit"),
    ] = None,
    no_guard_ram: Annotated[
        bool, typer.Option("--no-guard-ram", help="Don't stop it when the machine or container is almost out of RAM.")
    ] = False,
    timeout_idle: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="MINUTES",
            help="Stop it when it writes nothing and uses no CPU and no GPU for so long.",
            show_default="never",
        ),
    ] = None,
    json: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--json", metavar="FILE", help="Write the result as one JSON document.", show_default=False),
    ] = None,
) -> int:
    """Run any training command, record its memory, and explain its death.

    Output, input, signals, the terminal and the exit code are passed through. With --retry, a command that ran out of
    memory is started again with a smaller batch: flags of YOLOv5, yolo, Hugging Face's Trainer and Lightning's CLI are
    known, others use {batch}, {accumulate} and {resume}.
    """
    from ..supervisor import CommandRequest, HostLimits, run_command  # noqa: PLC0415

    if os.name == "nt":
        raise UsageError("`oomph run` needs a Unix system", "run it in WSL")
    _check_working_folder()
    policy = _parse_policy(tuple(command), retry, batch, resume_args)
    limits = HostLimits(_parse_budget(budget), not no_guard_ram, _parse_minutes(timeout_idle))
    if json is not None:
        _check_json(json, record)
    if policy.max_retries and (why := policy.why_never()):
        _tell(f"It can't be started again if memory runs out: {why}.")
    with _files(record) as files:
        result = run_command(CommandRequest(policy, files, limits), _tell)
    _report(result, json)
    return result.exit_code


def _report(result: RunResult, json: Path | None) -> None:
    """Explain the end of the command; what ended well needs no words, and no slow imports."""
    if json is None and result.last.is_plain:
        return
    from ..report import CommandReport, emit  # noqa: PLC0415

    report = CommandReport(result)
    if json is not None:
        content = document.dumps(report.document()).encode()
        try:
            write_atomically(json, lambda file: file.write(content), fsync=False)
        except OSError as error:
            _tell(f"--json {json} can't be written ({error.strerror}).")
    if not result.last.is_plain and sys.stderr is not None:
        try:
            emit(report, as_json=False, stream=sys.stderr)
            sys.stderr.flush()
        except OSError:
            # Nobody reads it any more; Python would fail again at exit and replace the exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _check_working_folder() -> None:
    """Check that there is a folder to run in.

    Raises:
        UsageError: It was deleted.
    """
    try:
        Path.cwd()
    except OSError as error:
        raise UsageError(
            f"the working directory can't be used ({error.strerror})", "change to one that exists"
        ) from None


def _check_json(path: Path, record: Path | None) -> None:
    """Check that the result can be written, before the command takes hours.

    Raises:
        UsageError: It can't.
    """
    if str(path).startswith("--"):
        raise UsageError("--json has no file name", "write it as in: oomph run --json result.json -- python train.py")
    if record is not None and path in {record, _log_of(record)}:
        raise UsageError(f"--json and --record both write {quote(str(path))}", "give them different names")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise not_writable(path.parent, error) from None
    if path.is_dir():
        raise UsageError(f"--json is {quote(str(path))}, which is a folder", "name a file that can be written")


def _log_of(record: Path) -> Path:
    """Return the copy of the output beside a Record that was chosen."""
    return record.with_suffix(".log")


def _tell(sentence: str) -> None:
    if sys.stderr is not None:
        # Paths may contain any bytes; the reports' own function for that is slow to import.
        shown = "".join(character if character.isprintable() else "?" for character in sentence)
        with contextlib.suppress(OSError):
            sys.stderr.write(f"oomph: {shown}\n")
            sys.stderr.flush()


@contextlib.contextmanager
def _files(record: Path | None) -> Iterator[RunFiles]:
    """Yield the files of the run: in a new folder, or next to the Record that was chosen."""
    from ..supervisor import RunFiles  # noqa: PLC0415

    if record is not None:
        if not record.name:
            raise UsageError(f"--record is {quote(str(record))}", "name a file, such as run.jsonl")
        yield RunFiles(record, _log_of(record))
        return
    with create_run_dir("exp", _RUNS) as folder:
        yield RunFiles(folder / "record.jsonl", folder / "output.log", folder / "command.txt")


def _parse_policy(words: tuple[str, ...], retry: str | None, batch: str | None, resume_args: str | None) -> RetryPolicy:
    from ..supervisor import RetryPolicy, parse_template  # noqa: PLC0415

    size = None if batch is None else _parse_count("--batch", batch, _MAX_BATCH)
    template = parse_template(words, size, resume_args)
    retries = 0 if retry is None else _parse_count("--retry", retry, _MAX_RETRIES)
    if retries and template is None and any("{batch}" in word for word in words):
        raise UsageError("the command has {batch} but there is no --batch", "add its first value, such as --batch 64")
    return RetryPolicy(words, template, retries)


def _parse_count(flag: str, text: str, largest: int) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= largest:
        raise UsageError(f"{flag} is {quote(text)}", f"write a whole number from 1 to {largest}")
    return int(text)


def _parse_budget(text: str | None) -> int | None:
    if text is None:
        return None
    gpu, ram = split_budget(text)
    if gpu is not None or ram is None:
        raise UsageError(
            f"--budget is {quote(text)}, and the GPU memory of another program can't be limited",
            "write a budget of RAM, such as ram=16GiB",
        )
    size = parse_size(ram)
    if size == 0:
        raise UsageError(f"--budget is {quote(text)}", "write a budget of RAM, such as ram=16GiB")
    return size


def _parse_minutes(text: str | None) -> float | None:
    if text is None:
        return None
    is_number = re.fullmatch(r"\d+\.?\d*|\.\d+", text, re.ASCII) and float(text)
    return float(text) * _MINUTE if is_number else parse_time(text)
