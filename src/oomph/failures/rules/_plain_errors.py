"""Names of built-in Python errors that are never about memory."""

from __future__ import annotations

PLAIN_ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "EOFError", "ImportError", "IndentationError", "IndexError",
    "JSONDecodeError", "KeyError", "NameError", "NotADirectoryError", "NotImplementedError", "RecursionError",
    "StopIteration", "SyntaxError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "ValidationError",
    "ValueError", "ZeroDivisionError",
)  # fmt: skip
