"""Rule `prefetch-over-budget`: batches that wait in RAM need more than there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....units import format_size
from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, DataLoaderCall, integer
from ...sources import Document
from ._sample_size import sample_bytes

_DEFAULT_PREFETCH = 2
_SIZE = r"(\d+(?:\.\d+)?)\s*(GB|GiB|G|MB|MiB|TB)"
_RAM = r"(?:(?:system|host|main|cpu)[\s-]+(?:ram|memory)|(?<!v)(?<!gpu )(?<!graphics )ram)"
_BEFORE = re.compile(rf"(?<![\d.]){_SIZE}\b\W{{0,4}}(?:of\s+|ddr\d\s+)*\W{{0,4}}{_RAM}\b", re.IGNORECASE)
# "RAM of the machine: 16 GB", but not "RAM and a GPU with 24 GB".
_GAP = r"(?:(?!gpu|vram|card|usage|use[sd]|grow|grew|goes|went|fill|need|[\d.\n]).){0,40}?"
_AFTER = re.compile(rf"\b{_RAM}\b{_GAP}(?<![\d.]){_SIZE}\b", re.IGNORECASE)
_SHARED = re.compile(rf"(?:/dev/shm|shm[-_ ]size|shared memory)\b[^.\n]{{0,25}}?(?<![\d.]){_SIZE}\b", re.IGNORECASE)
# A constant in the code: `RAM_GB = 16`, `RAM_BUDGET = 16 * 1024**3`.
_CONSTANT = re.compile(
    r"\b\w*(?<!v)ram(?:_gb|_gib|_budget|_limit|_bytes)?\s*=\s*(\d+)\s*(\*\s*(?:1024|1e9|2\s*\*\*)|$|#)",
    re.IGNORECASE | re.MULTILINE,
)
_UNITS = {"GB": 10**9, "GIB": 2**30, "G": 2**30, "MB": 10**6, "MIB": 2**20, "TB": 10**12}


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    if not document.loaders.all:
        return
    budget = document.ram_budget if document.ram_budget is not None else _stated_budget(document.text)
    if budget is None:
        return
    size = sample_bytes(document)
    for loader in document.loaders.all if size else ():
        factors = _factors(code, loader)
        if factors is None or size is None:
            continue
        workers, prefetch, batch = factors
        total = workers * prefetch * batch * size
        if total > budget:
            message = (
                f"{workers} workers × prefetch_factor {prefetch} × batch {batch} × {format_size(size)} = "
                f"{format_size(total)} of batches that wait in RAM, over the {format_size(budget)} there are: "
                "use fewer workers or prefetch less"
            )
            yield Problem(code.span(loader.call), message)


def _factors(code: Code, loader: DataLoaderCall) -> tuple[int, int, int] | None:
    """Return workers, prefetched batches of each, and samples of a batch; None if one isn't shown."""
    settings = loader.settings
    workers = integer(code, settings.get("num_workers"))
    batch = integer(code, settings.get("batch_size"))
    prefetch = integer(code, settings["prefetch_factor"]) if "prefetch_factor" in settings else _DEFAULT_PREFETCH
    if not workers or not batch or not prefetch:
        return None
    return workers, prefetch, batch


def _stated_budget(text: str) -> int | None:
    """Return the RAM or shared memory that the text says there is; the largest if it names several."""
    sizes = [
        int(float(match[1]) * _UNITS[match[2].upper()])
        for pattern in (_BEFORE, _AFTER, _SHARED)
        for match in pattern.finditer(text)
    ]
    sizes += [int(match[1]) * _UNITS["GIB"] for match in _CONSTANT.finditer(text)]
    return max(sizes, default=None)


PREFETCH_OVER_BUDGET = Rule(
    "prefetch-over-budget",
    RuleFamily.DATA,
    "Prefetched batches need more RAM than there is",
    _check,
    triggers=("num_workers",),
)
