"""The door of the command line."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from .. import __version__, document
from ..errors import OomphError, UsageError
from ._yolov5 import translate_yolov5, unknown_flags
from .detect import detect
from .doctor import doctor
from .explain import explain
from .gpus import gpus
from .predict import predict
from .train import default_resume, train
from .val import val
from .watch import watch

_COMMANDS = (train, val, detect, predict, watch, explain, doctor, gpus)
_INTERRUPTED = 130  # what shells expect of a program ended by Ctrl-C
# What writing to a full disk, over a quota or to a broken device says; reading facts never ends in these.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def main() -> NoReturn:
    """Run the command line of this process and leave with its exit code."""
    # Python leaves these out where the shell has closed them (`>&-`).
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper):
        sys.exit(_report(OomphError("standard output is closed", "send it to a file or to /dev/null"), ()))
    # A terminal or pipe that can't show a letter shows a question mark.
    out.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 failure, 2 wrong call, 3 cannot fit."""
    try:
        asked, words = translate_yolov5(default_resume(arguments))
        result = build().main(asked or ["--help"], prog_name="oomph", standalone_mode=False, obj=words)
        sys.stdout.flush()
    except OomphError as error:
        return _report(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`); Python would complain once more at exit.
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _discard_output()
        return _report(OomphError(f"the output can't be written ({error.strerror})", "send it elsewhere"), ())
    except Exception as error:
        refused = _wrong_call(error, arguments)
        if refused is None:
            raise
        return _report(refused, arguments)
    return result if isinstance(result, int) else 0


def _discard_output() -> None:
    """Send what is still to be written nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build() -> typer.core.TyperGroup:
    """Put the commands together."""
    app = typer.Typer(
        name="oomph",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: it wraps well and looks the same in a pipe
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(oomph)
    for command in _COMMANDS:
        app.command()(command)
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)  # noqa: S101  a callback makes it one
    return group


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"oomph {__version__}\n")
        raise typer.Exit


def oomph(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """Train PyTorch models without running out of memory."""
    del version


def _wrong_call(error: Exception, arguments: Sequence[str]) -> UsageError | None:
    """Turn typer's own complaints (an unknown flag, a number that isn't one) into ours."""
    words, context = getattr(error, "format_message", None), getattr(error, "ctx", None)
    if words is None:
        return None
    command = getattr(context, "command_path", "oomph")
    if hasattr(error, "option_name") and context is not None:
        known = {flag for one in context.command.get_params(context) for flag in one.opts}
        found = unknown_flags(command.removeprefix("oomph "), translate_yolov5(arguments)[0], known)
        if found is not None:
            return found
    return UsageError(str(words()).rstrip("."), f"`{command} --help` shows what there is")


def _report(error: OomphError, arguments: Sequence[str]) -> int:
    """Say what is wrong in one sentence, and as a document where one was asked for."""
    if "--json" in arguments:
        told = {
            "oomph": "error",
            "version": 1,
            "kind": type(error).__name__,
            "why": error.why,
            "fix": error.fix,
        }
        sys.stdout.write(document.dumps(told))
    if sys.stderr is not None:
        from ..report import printable  # noqa: PLC0415  rich is slow to import

        sys.stderr.write(f"oomph: {printable(str(error))}\n")
    return error.exit_code
