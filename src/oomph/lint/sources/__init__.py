"""Documents that the linter reads: Python files, notebooks, Markdown, shell scripts and pipes."""

from ._command_line import CommandLine, CommandPart
from ._commands import command_text, is_runner
from ._document import Document, DocumentKind, Line
from ._files import FILE_NAMES, document_kind, find_files, read_pipe, read_source
from ._lines import split_lines
from ._notebook import replace_cells
from ._parse import parse_document, syntax_error, which_parse
from ._shell_words import Word

__all__ = [
    "FILE_NAMES",
    "CommandLine",
    "CommandPart",
    "Document",
    "DocumentKind",
    "Line",
    "Word",
    "command_text",
    "document_kind",
    "find_files",
    "is_runner",
    "parse_document",
    "read_pipe",
    "read_source",
    "replace_cells",
    "split_lines",
    "syntax_error",
    "which_parse",
]
