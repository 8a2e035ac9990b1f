"""A document that is checked: its Python code, its commands and its prose."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .._problem import Span
from ..analysis import (
    Code,
    DataLoaders,
    Function,
    ImageFlow,
    LocalCalls,
    TrainingLoop,
    VolumeFlow,
    find_training_loops,
    loading_functions,
)
from ._command_line import CommandLine


class DocumentKind(enum.Enum):
    """The kind of a file that the linter reads."""

    PYTHON = "python"
    NOTEBOOK = "notebook"
    MARKDOWN = "markdown"
    SHELL = "shell"


@dataclass(frozen=True)
class Line:
    """A line of prose or code with its place in the file."""

    text: str
    span: Span


@dataclass(frozen=True)
class Document:
    """A file after reading.

    Attributes:
        path: The file's name in reports.
        kind: What it is.
        text: The whole text; of a notebook, that of its cells.
        code: All Python code, joined in the order of the document.
        commands: All shell commands.
        lines: All lines, prose and code; of a notebook those of its cells.
        sources: The text of each cell; of the whole file under None. Edits apply to these.
        ram_budget: The RAM that the user stated with `--budget`, in bytes; None if not stated.
    """

    path: str
    kind: DocumentKind
    text: str
    code: Code
    commands: tuple[CommandLine, ...] = ()
    lines: tuple[Line, ...] = ()
    sources: Mapping[int | None, str] = field(default_factory=dict)
    ram_budget: int | None = None

    @cached_property
    def loops(self) -> tuple[TrainingLoop, ...]:
        """The training loops of the code."""
        return find_training_loops(self.code)

    @cached_property
    def calls(self) -> LocalCalls:
        """The functions of the code and their calls."""
        return LocalCalls(self.code)

    @cached_property
    def loaders(self) -> DataLoaders:
        """The DataLoaders of the code."""
        return DataLoaders(self.code, self.calls)

    @cached_property
    def images(self) -> ImageFlow:
        """The images that the code reads."""
        return ImageFlow(self.code, self.calls)

    @cached_property
    def volumes(self) -> VolumeFlow:
        """The scans and scenes that the code reads."""
        return VolumeFlow(self.code, self.calls)

    @cached_property
    def loading_functions(self) -> list[Function]:
        """The functions that run for every sample."""
        return loading_functions(self.code, self.calls, self.images)
