"""Errors that no rule knows: built-in Python errors at the end of a traceback, and lines that look like an error."""

from __future__ import annotations

import re
from collections.abc import Callable

from .._kinds import FailureKind
from ..rules import PLAIN_ERRORS
from ._hits import Hit, LaterLines, survived

# Words of lines that may be an error, in any case.
ERROR_WORDS = (
    "error", "exception", "traceback", "fatal", "critical", "panic", "core dumped", "exit code", "exit status",
    "crashed", "killed", "aborted", *(name for name in PLAIN_ERRORS if "Error" not in name),
)  # fmt: skip
# Words of lines that say that a run has finished, in any case.
FINISH_WORDS = (
    "epochs completed in", "results saved to", "done training", "training done", "training complete",
    "training finished", "training has finished", "finished training", "max_epochs=", "train_runtime", "finished",
    "done",
)  # fmt: skip

_TRACEBACK = "Traceback (most recent call last)"
# Between the tracebacks of errors that belong together.
_CHAIN = re.compile(r"(?:During handling|cause) of the (?:above|following) exception")
# A launcher's error: a process that it started has failed.
_LAUNCHER_ERROR = re.compile(r"CalledProcessError|ChildFailedError|Process(?:Raised|Exited)Exception|RemoteError")
_PLAIN_ERROR = re.compile(
    r"^(?:.{0,60}?[\s|\]:>])?((?:[\w]+\.)*(?:" + "|".join(PLAIN_ERRORS) + r"))(?:: .*|\s*)$", re.MULTILINE
)
# A metric such as "MeanSquaredError: 0.12" is no error.
_NUMBER = r"\W{0,3}[-+]?\d*\.\d|\W{0,3}(?:nan|inf|None|none|null|False|false|0)\b"
_NAMED_ERROR = re.compile(rf"(?:\w*(?:Error|Exception)|\bexceptions?\.\w+): (?!{_NUMBER})")
_VAGUE_ERROR = re.compile(
    "|".join(
        (
            rf"(?<!level=)(?<!level: )\b(?:ERROR|FATAL|CRITICAL)\b(?!{_NUMBER})",
            rf"(?:^|[\s:\]])(?:[Ff]atal|[Ee]rror|panic)(?: error)?: (?!{_NUMBER})",
            r"\b[Ff]atal (?:\w+ )?error\b",
            r"\w(?:Error|Exception)\s*$",
            r"\((?:core|memory) dumped\)",
            r"\b(?i:exit(?:ed)?(?: with)? (?:code|status))\W{0,3}-?[1-9]",
            r"^Traceback \(",
            r"\bcrashed\b",
            r"\bkilled by\b",
            r"^\W*(?:Killed|Aborted)\W*$",
        )
    )
)
_FINISHED_WORDING = (
    r"epochs completed in|results saved to|(?:done|finished) training",
    r"training (?:is |has |was )?(?:done|complete|finish)",
    r"`?max_epochs=\d+`? reached|['\"]?train_runtime['\"]?\s*[:=]",
)
_FINISHED = re.compile("|".join(_FINISHED_WORDING), re.IGNORECASE)
# A shell script says this after a failed command, too.
_DONE = re.compile(r"^\s*(?:all )?(?:done|finished)(?:[.!,](?!\S)|$)(?!.{0,30}(?:error|fail|exit))", re.IGNORECASE)
_OF_COMPILER = {"SyntaxError", "IndentationError"}
_SOURCE = re.compile(r"^\s*(?:except|raise|if|elif|return|print|#)\b")
_MAX_TRACEBACK = 1000  # lines
_MAX_TAIL_LINES = 5  # lines that a shell or logger may print after the final error
_MAX_LINE = 600  # characters


class ErrorTrail:
    """The last errors of a log that is read line by line."""

    def __init__(self) -> None:
        self._traceback: int | None = None
        self._plain: Hit | None = None
        self._is_chained = False
        self._own_traceback = -1  # the line of the last traceback that doesn't belong to an earlier one
        self._named_line = -1
        self._named: str | None = None
        self._vague: str | None = None
        self.finished_line = -1  # the last line that says that the run has finished

    def need_progress(self, progress: int) -> bool:
        """Return True as long as progress decides whether the run survived the last error."""
        return self._plain is not None and not survived(self._plain, LaterLines(progress))

    @property
    def last_error(self) -> str | None:
        """The last line that names an error, or else the last one that looks like one."""
        return self._named or self._vague

    @property
    def _has_no_error(self) -> bool:
        return self._traceback is None and self.last_error is None

    def read(self, number: int, line: str, progress: Callable[[], int]) -> bool:
        """Read a line with one of the error words, and return True if it is an error.

        Args:
            number: The number of the line in the log.
            line: The line.
            progress: Returns the lines of progress before it.
        """
        if len(line) > 2 * _MAX_LINE:
            middle = max(line.rfind("Error: "), line.rfind("Exception: "), 0) or len(line)
            line = line[max(middle - _MAX_LINE, 0) : middle + _MAX_LINE]
        if _FINISHED.search(line) or (self._has_no_error and _DONE.search(line)):
            self.finished_line = number
            return True
        if _CHAIN.search(line):
            self._is_chained = True
        if _TRACEBACK in line:
            self._traceback, self._plain = number, None
            self._own_traceback = self._own_traceback if self._is_chained else number
            self._is_chained = False
        named = _NAMED_ERROR.search(line)
        vague = None if named else _VAGUE_ERROR.search(line)
        if (named or vague) and _SOURCE.match(line):
            return False
        if named:
            self._named, self._named_line = _around(line, named), number
        elif vague:
            self._vague = _around(line, vague)
        self._read_plain(number, line, progress)
        return bool(named or vague)

    def _read_plain(self, number: int, line: str, progress: Callable[[], int]) -> None:
        """Keep a built-in Python error at the end of a traceback."""
        plain = _PLAIN_ERROR.match(line)
        if plain is None or (self._traceback is not None and number - self._traceback > _MAX_TRACEBACK):
            return
        if plain[1] in _OF_COMPILER:  # Python prints no traceback
            self._traceback = number
        self._plain = Hit(
            FailureKind.PYTHON_ERROR, (number, 0), (number, len(line)), line.strip(), plain[0], progress()
        )

    def unknown_end(self, last_hit: int) -> str | None:
        """Return the error at the end of a traceback that begins after the line of the last recognized failure."""
        if self._named is None or not last_hit < self._own_traceback < self._named_line:
            return None
        return None if _LAUNCHER_ERROR.search(self._named) else self._named

    def plain_error(self, last_line: int, later: LaterLines, *, is_single_line: bool, has_hits: bool) -> Hit | None:
        """Return the built-in Python error that ended the run, if the log has a traceback or is a single line.

        Args:
            last_line: The number of the last line.
            later: What the lines after it show.
            is_single_line: True if only one line of the log has text.
            has_hits: True if a rule has matched: then only an error at the end counts.
        """
        plain = self._plain
        if plain is None or (self._traceback is None and not is_single_line):
            return None
        is_at_end = last_line - plain.start[0] <= _MAX_TAIL_LINES
        return plain if is_at_end or not (has_hits or survived(plain, later)) else None


def _around(line: str, match: re.Match[str]) -> str:
    return line[max(match.start() - _MAX_LINE, 0) : match.end() + _MAX_LINE].strip()
