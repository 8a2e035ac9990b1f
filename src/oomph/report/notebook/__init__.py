"""What notebooks show: objects as HTML, and progress without redrawn lines."""

from ._environment import in_notebook
from ._html import to_html

__all__ = ["in_notebook", "to_html"]
