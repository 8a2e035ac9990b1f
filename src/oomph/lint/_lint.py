"""Checks of files by all rules, and their fixes."""

from __future__ import annotations

import codecs
import contextlib
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import OomphError, UnknownName, quote
from ..files import write_atomically
from ._fixes import apply_fixes, choose_fixes
from ._ignores import Ignores
from ._problem import Diagnostic, LintResult, Problem
from ._rule import Rule
from .rules import RULES
from .sources import (
    Document,
    document_kind,
    find_files,
    parse_document,
    read_source,
    split_lines,
    syntax_error,
)

_MAX_FIX_ROUNDS = 5  # a fix can make another one possible
_STDIN_NAME = "standard input"


@dataclass(frozen=True)
class LintOptions:
    """Options of a check.

    Attributes:
        select: Names of the only rules to apply; empty means all.
        ignore: Names of rules to leave out.
        ram_budget: RAM in bytes that data loading may use, for the rules about it.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    ram_budget: int | None = None

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules to apply.

        Raises:
            UnknownName: No rule has one of the names.
        """
        names = {rule.name for rule in RULES}
        for name in (*self.select, *self.ignore):
            if name not in names:
                raise _unknown_rule(name, names)
        return tuple(
            rule for rule in RULES if rule.name not in self.ignore and (not self.select or rule.name in self.select)
        )


def _unknown_rule(name: str, names: Iterable[str]) -> UnknownName:
    nearest = tuple(difflib.get_close_matches(name, names, n=1))
    fix = f"did you mean {nearest[0]}?" if nearest else "oomph lint --rules lists all of them"
    return UnknownName(f"there is no rule {quote(name)}", fix, nearest)


_DEFAULT = LintOptions()


@dataclass
class _Collected:
    """Results that grow while files are checked."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    files: int = 0
    lines: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    partly: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)
    unfixed: dict[str, str] = field(default_factory=dict)

    def result(self) -> LintResult:
        ordered = tuple(sorted(self.diagnostics, key=lambda diagnostic: diagnostic.sort_key))
        return LintResult(ordered, self.files, self.lines, self.skipped, self.partly, self.fixed, self.unfixed)


def lint_paths(paths: Sequence[Path], options: LintOptions = _DEFAULT, *, fix: bool = False) -> LintResult:
    """Check files and folders; with `fix`, correct what is safe and return what is left.

    Raises:
        MissingFile: A path doesn't exist.
        UnknownName: No rule has a name in the options.
    """
    rules = options.rules()
    collected = _Collected()
    for path in dict.fromkeys(find_files(paths)):
        name = str(path)
        try:
            text = read_source(path)
            if fix:
                text = _fix_file(path, text, options, collected)
            _check(name, text, rules, options, collected)
        except OomphError as error:
            collected.skipped[name] = error.why
    return collected.result()


def lint_text(text: str, name: str = _STDIN_NAME, options: LintOptions = _DEFAULT) -> LintResult:
    """Check a text; its kind is that of the name's ending, or of its content.

    Raises:
        InvalidFile: It is a damaged notebook.
        UnknownName: No rule has a name in the options.
    """
    collected = _Collected()
    _check(name, text, options.rules(), options, collected)
    return collected.result()


def fix_text(text: str, name: str, options: LintOptions = _DEFAULT) -> tuple[str, int]:
    """Return a text with all safe fixes, and how many problems they solve.

    Raises:
        InvalidFile: It is a damaged notebook.
        UnknownName: No rule has a name in the options.
    """
    fixed, count, _ = _fix_rounds(text, name, options)
    return fixed, count


def _fix_rounds(text: str, name: str, options: LintOptions) -> tuple[str, int, list[Problem]]:
    """Return a text with all safe fixes, how many problems they solve, and those whose fix would break the code."""
    rules, count, left = options.rules(), 0, list[Problem]()
    for _ in range(_MAX_FIX_ROUNDS):
        document = parse_document(name, text, document_kind(name, text), options.ram_budget)
        problems = choose_fixes(problem for _, problem in _problems(document, rules))
        text, left = apply_fixes(document, text, problems)
        if len(left) == len(problems):
            break
        count += len(problems) - len(left)
    return text, count, left


def _check(name: str, text: str, rules: Sequence[Rule], options: LintOptions, collected: _Collected) -> None:
    kind = document_kind(name, text)
    if (error := syntax_error(name, text, kind)) is not None:
        collected.partly[name] = f"{error}; lint reads the code around it"
    collected.files += 1
    collected.lines += text.count("\n") + (not text.endswith("\n"))
    applicable = [rule for rule in rules if rule.applies_to(text)]
    if not applicable:
        return
    document = parse_document(name, text, kind, options.ram_budget)
    collected.diagnostics += [Diagnostic(name, rule.name, problem) for rule, problem in _problems(document, applicable)]


def _problems(document: Document, rules: Iterable[Rule]) -> Iterator[tuple[Rule, Problem]]:
    """Yield the problems that no comment hides, each place and rule once."""
    ignores = Ignores({cell: split_lines(source) for cell, source in document.sources.items()})
    seen: set[tuple[str, object]] = set()
    for rule in rules:
        if not rule.applies_to(document.text):
            continue
        for problem in _checked(rule, document):
            key = (rule.name, problem.span)
            if key not in seen and not ignores.hides(rule.name, problem):
                seen.add(key)
                yield rule, problem


def _checked(rule: Rule, document: Document) -> Iterator[Problem]:
    """Yield the problems of a rule; code that is nested thousands of levels deep is left out."""
    with contextlib.suppress(RecursionError):
        yield from rule.check(document)


def _fix_file(path: Path, text: str, options: LintOptions, collected: _Collected) -> str:
    """Fix a file in place; one with bytes that are no UTF-8 stays as it is."""
    data, encoded = path.read_bytes(), text.encode()
    is_utf8 = data.removeprefix(codecs.BOM_UTF8) == encoded
    fixed, count, left = _fix_rounds(text, str(path), options)
    if (count or left) and not is_utf8:
        collected.unfixed[str(path)] = "its text is not UTF-8"
        return text
    if left:
        places = ", ".join(problem.span.place for problem in left)
        collected.unfixed[str(path)] = f"the code would no longer parse with the correction at {places}"
    if count:
        content = data[: len(data) - len(encoded)] + fixed.encode()
        target, mode = path.resolve(), path.stat().st_mode
        write_atomically(target, lambda file: file.write(content))
        target.chmod(mode)
        collected.fixed[str(path)] = count
    return fixed
