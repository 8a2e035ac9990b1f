"""Languages of code in texts: by the name of a fence, or by the look of its lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._piece import Language, PieceLine

_PYTHON = "python py python3 python2 py3 ipython ipython3 pycon python-repl pyi jupyter jupyter-python colab sage"
_SHELL = (
    "sh bash shell zsh fish ksh console terminal shellscript shell-session sh-session bash-session shellsession cmd "
    "bat batch powershell ps1 pwsh ps commandline"
)
_LANGUAGES = {
    **dict.fromkeys(_PYTHON.split(), Language.PYTHON),
    **dict.fromkeys(_SHELL.split(), Language.SHELL),
}
_MARKDOWN = {"markdown", "md", "mdx", "gfm"}
_PYTHON_WORDS = "import|from|def|class|for|while|if|with|try|return|del|optimizer|model|loss"
_PYTHON_LINE = re.compile(rf"^\s*(?:(?:{_PYTHON_WORDS})\b|[\w.]+\s*(?:[-+*/]?=|\()|@\w|>>> |In \[)")
_SHELL_WORDS = "python3?|pip3?|conda|export|nvidia-smi|yolo|torchrun|sudo|watch|docker|git|cd|wget|curl|aws|gcloud|az"
_SHELL_LINE = re.compile(rf"^\s*(?:\$ |(?:[A-Z_][A-Z0-9_]*=\S* )*(?:{_SHELL_WORDS})\s+[\w./~$\"'-])")


def is_markdown(name: str) -> bool:
    """Return True if a fence contains Markdown, and so other fences."""
    return name.lower() in _MARKDOWN


def language_of(name: str, lines: Sequence[PieceLine]) -> Language | None:
    """Return the language of a fence by its name; of one without a name by its lines. None is another language."""
    return _LANGUAGES.get(name.lower()) if name else guess_language(lines)


def guess_language(lines: Sequence[PieceLine]) -> Language | None:
    """Return the language that lines look like."""
    texts = [line.text for line in lines if line.text.strip() and not line.text.lstrip().startswith("#")]
    if any(_SHELL_LINE.match(text) for text in texts[:3]):
        return Language.SHELL
    hits = sum(_PYTHON_LINE.match(text) is not None for text in texts)
    if texts and texts[0].lstrip().startswith(("!", "%")):
        return Language.PYTHON  # a cell of a notebook
    return Language.PYTHON if texts and hits * 3 >= len(texts) else None
