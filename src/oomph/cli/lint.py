"""`oomph lint`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from .. import document
from ..errors import UsageError, quote
from ._options import Json

if TYPE_CHECKING:
    from ..lint import LintOptions

_STDIN = "-"


def lint(
    path: Annotated[
        Optional[list[str]],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Argument(metavar="PATH", help="Files or folders; - reads standard input.", show_default=False),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Correct what is safe to correct, in place.")] = False,
    select: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="RULE,…", help="Only these rules.", show_default="all"),
    ] = None,
    ignore: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="RULE,…", help="Leave these rules out.", show_default="none"),
    ] = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="SIZE", help="RAM for data loading, to check prefetching.", show_default="not checked"),
    ] = None,
    stdin_name: Annotated[
        str, typer.Option(metavar="NAME", help="File name of standard input; its ending tells the language.")
    ] = "standard input",
    rules: Annotated[bool, typer.Option("--rules", help="List all rules.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Write SARIF 2.1.0, for code hosts and editors.")] = False,
    json: Json = False,
) -> int:
    """Find mistakes in training code that cost memory, time or accuracy, before it runs.

    Reads Python files, notebooks, the code in Markdown, and shell scripts. It imports no torch and runs nothing. Switch
    a rule off for a line with the comment: # oomph: ignore[rule]. The exit code is 1 if there are mistakes.
    """
    from ..lint import LintOptions, lint_paths, lint_text, read_pipe  # noqa: PLC0415
    from ..report import LintReport, LintRuleList, emit  # noqa: PLC0415

    if rules:
        emit(LintRuleList(), as_json=json)
        return 0
    if sarif and json:
        raise UsageError("both --sarif and --json were given", "choose one")
    if not path:
        raise UsageError("no file was given", "name files or folders, for example: oomph lint train.py")
    options = _options(LintOptions, select, ignore, budget)
    if path == [_STDIN]:
        text = read_pipe(sys.stdin.buffer)
        if fix:
            if json or sarif:
                raise UsageError("--fix writes the corrected text to standard output", "leave out --json and --sarif")
            _write_fixed(text, stdin_name, options)
            return 0
        result = lint_text(text, stdin_name, options)
    elif _STDIN in path:
        raise UsageError("- was given together with files", "check standard input alone")
    else:
        result = lint_paths([Path(name) for name in path], options, fix=fix)
        if not result.files and not result.skipped:
            raise UsageError(
                f"there is nothing to check in {quote(path[0])}",
                "name Python files, notebooks, Markdown, shell scripts, or folders with such files",
            )
    report = LintReport(result)
    if sarif:
        sys.stdout.write(document.dumps(report.sarif()))
    else:
        emit(report, as_json=json)
    nothing_checked = not result.files
    return 2 if nothing_checked else int(bool(result.diagnostics))


def _write_fixed(text: str, name: str, options: LintOptions) -> None:
    from ..lint import fix_text  # noqa: PLC0415

    if "\N{REPLACEMENT CHARACTER}" in text:
        raise UsageError("standard input is not UTF-8, and --fix would change its other bytes", "convert it first")
    sys.stdout.write(fix_text(text, name, options)[0])


def _options(kind: type[LintOptions], select: str | None, ignore: str | None, budget: str | None) -> LintOptions:
    from ..units import parse_size, split_budget  # noqa: PLC0415

    either, ram = split_budget(budget)
    size = ram or either
    return kind(_names(select), _names(ignore), None if size is None else parse_size(size))


def _names(listed: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (listed or "").split(",") if name.strip())
