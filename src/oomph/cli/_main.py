"""Entry point of the command line."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from .. import __version__, document
from ..errors import OomphError, UsageError, shorten
from ._runs import default_resume, default_retry, own_arguments
from ._shrink import build_shrink
from ._yolov5 import translate_yolov5, unknown_flags
from .detect import detect
from .doctor import doctor
from .explain import explain
from .gpus import gpus
from .lint import lint
from .plan import plan
from .predict import predict
from .report import report
from .run import run as run_command
from .sweep import sweep
from .train import train
from .val import val
from .watch import watch

_COMMANDS = (train, val, detect, predict, plan, sweep, watch, report, explain, lint, doctor, gpus)
_RUN = "run"
_INTERRUPTED_EXIT_CODE = 130  # as shells report Ctrl-C
# Errors of writing to a full disk, over a quota or to a broken device; reading facts never raises them.
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    # Python has no sys.stdout if the shell has closed it (`>&-`).
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper):
        sys.exit(_report_error(OomphError("standard output is closed", "redirect it to a file or to /dev/null"), ()))
    # A character that the terminal or pipe can't encode becomes a question mark.
    out.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 usage error, 3 cannot fit."""
    given = arguments
    if list(arguments[:1]) == [_RUN]:
        given = default_retry(arguments)
        # Standard output and the words of the command are its own, so errors don't refer to them.
        arguments = [word for word in own_arguments(arguments) if word != "--json"]
    try:
        requested, ignored = translate_yolov5(default_resume(given))
        result = build().main(requested or ["--help"], prog_name="oomph", standalone_mode=False, obj=ignored)
        sys.stdout.flush()
    except OomphError as error:
        return _report_error(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # The reader of the output has closed it (`| head`); Python would complain again at exit.
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _WRITE_ERRORS:
            raise
        _discard_output()
        return _report_error(OomphError(f"the output can't be written ({error.strerror})", "redirect it elsewhere"), ())
    except Exception as error:
        usage_error = _as_usage_error(error, arguments)
        if usage_error is None:
            raise
        return _report_error(usage_error, arguments)
    return result if isinstance(result, int) else 0


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build() -> typer.core.TyperGroup:
    """Build the command group."""
    app = typer.Typer(
        name="oomph",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help wraps well and looks the same in a pipe
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(oomph)
    for command in _COMMANDS:
        app.command()(command)
    # The words after the command belong to it, even if they look like flags.
    app.command(_RUN, context_settings={"allow_interspersed_args": False})(run_command)
    app.add_typer(build_shrink())
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)  # noqa: S101  an app with a callback is a group
    return group


def _show_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"oomph {__version__}\n")
        raise typer.Exit


def oomph(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train PyTorch models without running out of memory."""
    del version


def _as_usage_error(error: Exception, arguments: Sequence[str]) -> UsageError | None:
    """Convert typer's errors (an unknown flag, an invalid number) to a usage error."""
    format_message, context = getattr(error, "format_message", None), getattr(error, "ctx", None)
    if format_message is None:
        return None
    command = getattr(context, "command_path", "oomph")
    if hasattr(error, "option_name") and context is not None:
        known = {flag for parameter in context.command.get_params(context) for flag in parameter.opts}
        usage_error = unknown_flags(command.removeprefix("oomph "), translate_yolov5(arguments)[0], known)
        if usage_error is not None:
            return usage_error
    message = str(format_message()).rstrip(".")
    for argument in arguments:
        message = message.replace(argument, shorten(argument)) if argument else message
    return UsageError(message, f"run `{command} --help` to list the options")


def _report_error(error: OomphError, arguments: Sequence[str]) -> int:
    """Print an error as one sentence, and with --json also as a document."""
    if "--json" in arguments:
        error_document = {
            "oomph": "error",
            "version": 1,
            "kind": type(error).__name__,
            "why": error.why,
            "fix": error.fix,
        }
        sys.stdout.write(document.dumps(error_document))
    if sys.stderr is not None:
        from ..report import printable  # noqa: PLC0415  rich is slow to import

        sys.stderr.write(f"oomph: {printable(str(error))}\n")
    return error.exit_code
