"""Rule `unknown-cloud-machine`: machine types with GPUs that no cloud provider has."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterator, Mapping, Sequence

from ..._problem import Problem, Span
from ..._rule import Rule, RuleFamily
from ...sources import Document, DocumentKind, Line

_PROVIDERS = {"aws": "AWS", "gcp": "Google Cloud", "azure": "Azure"}
_START = r"(?<![\w.])(?<!\w-)"
_AWS_FAMILY = r"(?:p[2-5]|g[2-6]|g7e|gr6|inf[12]|trn[12]|dl1|dl2)[a-z]*"
_AWS_SIZE = r"\d*xlarge|metal|nano|micro|small|medium|large"
_GCP_SIZE = r"(?:standard|highmem|highcpu|(?:high|mega|ultra|edge|max)gpu)-\d+g?"
_AZURE_SIZE = r"\d+[a-z]*(?:_[A-Z][A-Za-z0-9]*)?(?:_v[1-5])?"
_PATTERNS = {
    "aws": re.compile(rf"{_START}(?:ml\.)?({_AWS_FAMILY})\.({_AWS_SIZE})(?![\w-])"),
    "gcp": re.compile(rf"{_START}(a[234]|g[24]|n1)-({_GCP_SIZE})(?:-nolssd|-metal)?(?![\w-])"),
    "azure": re.compile(rf"(?:(?<=[Ss]tandard_)|(?<![\w-]))(NC|ND|NV)({_AZURE_SIZE})(?![\w-])"),
}
# A name that looks like a variable's attribute in code.
_PLAIN_SIZES = {"metal", "nano", "micro", "small", "medium", "large", "xlarge"}
# Families that people expect beside those that exist.
_MISSING = {("aws", "p4"): "p4d.24xlarge", ("aws", "g4"): "g4dn.xlarge", ("aws", "p5d"): "p5.48xlarge"}
_DENIAL = re.compile(
    r"\b(?:no such|there(?:'s| is| was) no|(?:does|do|did)(?:n.t| not) exist|nonexistent|not exist)\b", re.IGNORECASE
)


@functools.cache
def _families() -> Mapping[tuple[str, str], tuple[str, ...]]:
    families: dict[tuple[str, str], tuple[str, ...]] = {}
    text = importlib.resources.files(__package__).joinpath("cloud_machines.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            provider, family, *sizes = line.split()
            families[provider, family] = (*families.get((provider, family), ()), *sizes)
    return families


def _check(document: Document) -> Iterator[Problem]:
    patterns = {provider: pattern for provider, pattern in _PATTERNS.items() if pattern.search(document.text)}
    for line in document.lines if patterns else ():
        for provider, pattern in patterns.items():
            for match in pattern.finditer(line.text):
                if _is_meant(document, line.text, provider, match):
                    yield from _check_name(provider, line, match)


def _is_meant(document: Document, text: str, provider: str, match: re.Match[str]) -> bool:
    """Return False for names that are no machines', or that a sentence calls missing."""
    if provider == "azure" and not _is_azure(text, match):
        return False
    if match[2] in _PLAIN_SIZES and document.kind is DocumentKind.PYTHON and not _is_quoted(text, match):
        return False
    return _DENIAL.search(text) is None


def _is_azure(text: str, match: re.Match[str]) -> bool:
    """Return True if `Standard_` or a version shows that a short name such as NC6 is a machine's."""
    return text[: match.start()].lower().endswith("standard_") or "_v" in match[2]


def _is_quoted(text: str, match: re.Match[str]) -> bool:
    return match.start() > 0 and text[match.start() - 1] in "\"'`"


def _check_name(provider: str, line: Line, match: re.Match[str]) -> Iterator[Problem]:
    family, size = match[1], match[2]
    sizes = _families().get((provider, family))
    missing = _MISSING.get((provider, family))
    if sizes is None and missing is None:
        return  # a newer family than we know
    if sizes is not None and size.lower() in {known.lower() for known in sizes}:
        return
    if size == "metal":
        return  # added to families without notice
    separator = {"aws": ".", "gcp": "-", "azure": ""}[provider]
    prefix = "Standard_" if provider == "azure" else ""
    name = f"{family}{separator}{size}"
    if sizes is None:
        advice = f"the nearest is {missing}"
    else:
        near = ", ".join(f"{prefix}{family}{separator}{known}" for known in _nearest_sizes(size, sizes))
        advice = f"there {'are' if ', ' in near else 'is'} {near}"
    message = f"{_PROVIDERS[provider]} has no machine type {prefix}{name}: {advice}"
    span = line.span
    yield Problem(Span(span.cell, span.line, match.start(), span.line, match.end()), message)


def _nearest_sizes(size: str, sizes: Sequence[str], count: int = 4) -> list[str]:
    """Return the sizes whose form and number are nearest, in the order of the family."""
    form, number = _form(size)
    ranked = sorted(sizes, key=lambda known: (_form(known)[0] != form, abs(_form(known)[1] - number)))[:count]
    same = [known for known in ranked if _form(known)[0] == form]
    return sorted(same or ranked, key=sizes.index)


def _form(size: str) -> tuple[str, int]:
    """Return a size without its number, and the number: `highgpu-3g` → ("highgpu-g", 3)."""
    match = re.search(r"\d+", size)
    return (size.replace(match[0], "", 1), int(match[0])) if match else (size, 1)


UNKNOWN_CLOUD_MACHINE = Rule(
    "unknown-cloud-machine",
    RuleFamily.COMMANDS,
    "A cloud machine type that doesn't exist",
    _check,
    triggers=("large", ".metal", "gpu-", "g2-", "g4-", "n1-", "NC", "ND", "NV", ".medium", ".small"),
)
