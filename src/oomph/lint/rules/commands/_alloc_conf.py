"""Rule `alloc-conf-unknown`: misspelled variables and options of torch's caching allocator."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator

from ..._problem import Edit, Problem, Span
from ..._rule import Rule, RuleFamily
from ...sources import Document, Line
from ._names import is_placeholder, nearest

_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
# Variables of other libraries and torch's that are like them in name only.
_OTHERS = {
    "PYTORCH_NPU_ALLOC_CONF", "PYTORCH_XPU_ALLOC_CONF", "PYTORCH_MLU_ALLOC_CONF", "PYTORCH_MUSA_ALLOC_CONF",
    "PYTORCH_GCU_ALLOC_CONF", "PYTORCH_SDAA_ALLOC_CONF", "PYTORCH_MPS_ALLOC_CONF", "PYTORCH_CPU_ALLOC_CONF",
    "PYTORCH_HPU_ALLOC_CONF",
}  # fmt: skip
# Options of torch 1.10 to 2.13, of its allocators for devices and for pinned memory.
_BOOLEANS = {
    "expandable_segments", "release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register", "pinned_use_background_threads", "graph_capture_record_stream_reuse",
    "use_uva_mem", "throw_on_cudamalloc_oom", "use_async_allocator",
}  # fmt: skip
_OPTIONS = frozenset(_BOOLEANS) | {
    "max_split_size_mb", "max_non_split_rounding_mb", "garbage_collection_threshold", "roundup_power2_divisions",
    "roundup_bypass_threshold_mb", "backend", "pinned_num_register_threads", "pinned_reserve_segment_size_mb",
    "pinned_max_cached_size_mb", "pinned_max_round_threshold_mb", "pinned_max_power2_size_mb",
    "per_process_memory_fraction", "large_segment_size_mb",
}  # fmt: skip
_SAME = {"max_split_size": "max_split_size_mb", "expandable_segment": "expandable_segments"}
_OTHER_UNIT = re.compile(r"_(?:b|bytes|kb|kib|gb|gib)$")
_BACKENDS = {"native", "cudaMallocAsync", "hipMallocAsync"}
_MAX_SIZE_DIGITS = 5  # a longer number is no size in MB
_SMALLEST_SPLIT = 20  # MB
_LIKENESS = 0.87  # of a misspelled variable; PYTORCH_HIP_ALLOC_CONF and the like are further apart
_LIKENESS_WITH_OPTION = 0.7  # of a name whose value is for the allocator
_CANDIDATE = re.compile(r"(?<![\w$%])[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+){1,6}\b")
_ASSIGNED = re.compile(r"[\"'`]?\]?\s*(?:=(?!=)|:|,|\s)\s*")
_VALUE = re.compile(r"(?:[bfruBFRU]{0,2}(?P<quote>[\"']))?(?P<value>[A-Za-z_]\w*\s*[:=](?!//)[^\"'`]*)")
_ALONE = re.compile(r"[\"']?(\w+)[\"']?\s*(?:[#;&|].*)?$")
_SETTING_CALL = re.compile(r"\b_?set_allocator_settings\(\s*")
# Prose about a wrong name: "not PYTORCH_CUDA_ALLOC_CONFIG".
_DENIAL = re.compile(r"\b(?:not|no|instead of|rather than)\b[^=]{0,20}$", re.IGNORECASE)


def _check(document: Document) -> Iterator[Problem]:
    for line in document.lines:
        text = line.text
        lowered = text.lower()
        if "alloc" not in lowered and not ("conf" in lowered and ("torch" in lowered or "cuda" in lowered)):
            continue
        for match in _CANDIDATE.finditer(text):
            name = match[0]
            if name in _VARIABLES:
                yield from _check_value(line, match.end())
            elif (problem := _misspelled(line, match)) is not None:
                yield problem
        for match in _SETTING_CALL.finditer(text):
            yield from _check_options(line, match.end())
    yield from _check_assigned(document)


def _check_assigned(document: Document) -> Iterator[Problem]:
    """Check values in other lines than the variable: `os.environ["…"] = setting`."""
    code = document.code
    for subscript in code.nodes(ast.Subscript):
        statement = code.parent(subscript)
        if not isinstance(statement, ast.Assign) or code.resolve(subscript.value) != "os.environ":
            continue
        if code.constant(subscript.slice) not in _VARIABLES:
            continue
        for value in code.values(statement.value):
            is_string = isinstance(value, ast.Constant) and isinstance(value.value, str)
            if is_string and code.span(value).line != code.span(subscript).line:
                span = code.span(value)
                key = (span.cell, span.line)
                line = next(line for line in document.lines if (line.span.cell, line.span.line) == key)
                yield from _check_options(line, span.column)


def _misspelled(line: Line, match: re.Match[str]) -> Problem | None:
    """Return the problem of a name that is nearly a variable's and receives a value."""
    name, text = match[0], line.text
    if name in _OTHERS or not ("CUDA" in name or "TORCH" in name) or name != name.upper():
        return None
    if _DENIAL.search(text[: match.start()]):
        return None
    assigned = _ASSIGNED.match(text, match.end())
    if assigned is None or not _is_set(text, match.start(), assigned.end()):
        return None
    ratio, other = max((difflib.SequenceMatcher(None, name, variable).ratio(), variable) for variable in _VARIABLES)
    if ratio < (_LIKENESS_WITH_OPTION if _has_option(text, assigned.end()) else _LIKENESS):
        return None
    span = _span(line, match.start(), match.end())
    message = f"torch doesn't read the variable {name}, so the setting has no effect: write {other}"
    return Problem(span, message, (Edit(span, other),))


def _is_set(text: str, start: int, end: int) -> bool:
    """Return True if a variable gets a value: of options of the allocator, or in an environment."""
    head = text[:start].rstrip("\"'[( ")
    if re.search(r"(?:environ(?:\.setdefault|\.update)?|putenv|setenv|export|ENV|env|set|-e|--env)$", head):
        return True
    return _has_option(text, end)


def _has_option(text: str, position: int) -> bool:
    """Return True if a value starts with an option of the allocator."""
    value = _VALUE.match(text, position)
    return value is not None and re.split(r"\s*[:=]", value["value"])[0] in _OPTIONS


def _check_value(line: Line, start: int) -> Iterator[Problem]:
    assigned = _ASSIGNED.match(line.text, start)
    if assigned is None:
        return
    alone = _ALONE.match(line.text, assigned.end())
    if alone is not None and "=" in assigned[0] and alone[1] in _OPTIONS:
        span = _span(line, alone.start(1), alone.end(1))
        example = f"{alone[1]}:True" if alone[1] in _BOOLEANS else f"{alone[1]}:VALUE"
        yield Problem(span, f"the allocator's option {alone[1]} has no value here: write {example}")
    else:
        yield from _check_options(line, assigned.end())


def _check_options(line: Line, start: int) -> Iterator[Problem]:
    match = _VALUE.match(line.text, start)
    if match is None:
        return
    value = match["value"]
    if not match["quote"]:
        value = re.split(r"[\s;&|)\\]", value, maxsplit=1)[0].rstrip(".,")
        if " " in line.text[match.start() : match.start("value")] or not re.match(r"\w+[:=]\S", value):
            return
    position = match.start("value")
    for part in re.split(r",(?![^\[]*\])", value):
        yield from _check_option(line, position, part)
        position += len(part) + 1


def _check_option(line: Line, position: int, part: str) -> Iterator[Problem]:
    match = re.match(r"(\s*)([\w.-]+)\s*([:=]?)\s*(.*?)\s*$", part)
    if match is None or is_placeholder(match[2]):
        return
    name, separator, value = match[2], match[3], match[4]
    span = _span(line, position + match.start(2), position + match.end(2))
    if name not in _OPTIONS:
        yield _unknown_option(span, name, value)
    elif separator == "=":
        place = _span(line, position + match.start(3), position + match.end(3))
        message = f"`{name}={value}` is no setting of torch's allocator: write {name}:{value}, with a colon"
        yield Problem(span, message, (Edit(place, ":"),))
    elif (needed := _wrong_value(name, value)) is not None:
        place = _span(line, position + match.start(4), position + match.end(4))
        is_case = name in _BOOLEANS and value.capitalize() in {"True", "False"}
        edits = (Edit(place, value.capitalize()),) if is_case else ()
        yield Problem(span, f"torch's allocator doesn't take `{name}:{value}`: {needed}", edits)


def _unknown_option(span: Span, name: str, value: str) -> Problem:
    other = _SAME.get(name) or nearest(name, _OPTIONS, 0.8)
    advice = f"write {other}" if other else "it knows max_split_size_mb, expandable_segments and others"
    # A size without a unit may be in bytes, and one in another unit is another number.
    is_clear = name != "max_split_size" or (value.isdigit() and len(value) <= _MAX_SIZE_DIGITS)
    if other is not None and other.endswith("_mb") and _OTHER_UNIT.search(name):
        advice, is_clear = f"write {other}, with the size in MB", False
    edits = (Edit(span, other),) if other is not None and is_clear else ()
    return Problem(span, f"torch's allocator has no option `{name}` and stops with an error: {advice}", edits)


def _wrong_value(name: str, value: str) -> str | None:
    """Return what an option needs, if its value is wrong."""
    if re.search(r"[\w\]]\s*[;\s]\s*\w+:", value):
        return "separate options with commas"
    if is_placeholder(value):
        return None
    if name in _BOOLEANS and value not in {"True", "False"}:
        return f"write {name}:True or {name}:False"
    if name == "backend" and value not in _BACKENDS:
        return "write backend:cudaMallocAsync or backend:native"
    if name == "max_split_size_mb" and value.isdigit() and int(value) < _SMALLEST_SPLIT:
        return f"the smallest size is {_SMALLEST_SPLIT}"
    if name.endswith("_mb") and re.fullmatch(r"\d+\s*[a-zA-Z]+", value):
        return "write the number of MB without a unit"
    if name == "garbage_collection_threshold" and re.fullmatch(r"[\d.]+", value):
        is_fraction = value.count(".") <= 1 and 0 < float(value) < 1
        return None if is_fraction else "write a fraction between 0 and 1, such as 0.8"
    return None


def _span(line: Line, start: int, end: int) -> Span:
    return Span(line.span.cell, line.span.line, start, line.span.line, end)


ALLOC_CONF_UNKNOWN = Rule(
    "alloc-conf-unknown",
    RuleFamily.COMMANDS,
    "A variable or option that torch's allocator doesn't know",
    _check,
    triggers=("ALLOC", "TORCH_", "allocator_settings"),
    is_fixable=True,
)
