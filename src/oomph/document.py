"""One family of versioned JSON documents: frozen dataclasses to JSON and back, by their types alone.

A document is an object whose first key says what it is: `{"oomph": "machine", "version": 1, …}`. Reading checks every
field against its type, so that a file written by another version, or by hand, is refused with the place of the fault
and never half understood.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import InvalidFile, MissingFile

T = TypeVar("T")

_BEYOND = 2**63
_QUOTED = 40  # characters of a wrong text that are shown


class _Mismatch(Exception):
    """A value does not have the type its place asks for."""

    def __init__(self, place: str, wanted: str) -> None:
        super().__init__(f"{place or 'the document'} should be {wanted}")


def encode(value: object) -> Any:
    """Turn a value made of dataclasses, enums, tuples and plain values into what `json.dumps` takes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"{type(value).__name__} can't be part of a document")


def write(kind: str, version: int, value: object) -> dict[str, Any]:
    """Make the document of a value."""
    return {"oomph": kind, "version": version, **encode(value)}


def read(kind: str, version: int, wanted: type[T], data: object) -> T:
    """Read a document back into its dataclass.

    Raises:
        InvalidFile: it is of another kind or version, or a field is missing or of the wrong type.
    """
    if not isinstance(data, dict) or data.get("oomph") != kind:
        found = data.get("oomph") if isinstance(data, dict) else None
        if isinstance(found, str):
            raise InvalidFile(f"this document is of the kind {found[:_QUOTED]!r}, not {kind!r}", "name another file")
        raise InvalidFile(f"this is no oomph document, not a {kind} document", "name another file")
    if data.get("version") != version:
        written = str(data.get("version"))[:_QUOTED]
        raise InvalidFile(
            f"this {kind} document has version {written} and this oomph reads version {version}",
            "write it again with this oomph",
        )
    try:
        result = _decode(wanted, {k: v for k, v in data.items() if k not in {"oomph", "version"}}, "")
    except _Mismatch as fault:
        raise InvalidFile(f"this {kind} document is damaged ({fault})", "write it again") from None
    assert isinstance(result, wanted)  # noqa: S101  for the type checker
    return result


def load(path: Path) -> object:
    """Read the JSON of a file.

    Raises:
        MissingFile: there is no such file.
        InvalidFile: it is not JSON.
    """
    try:
        # Bytes, so that the encoding is told by their beginning: PowerShell writes UTF-16 or a byte-order mark.
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise MissingFile(f"there is no file {str(path)!r}", "check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{str(path)!r} can't be read ({error})", "name a JSON file") from None
    except json.JSONDecodeError as error:
        raise InvalidFile(f"{str(path)!r} is not JSON (line {error.lineno})", "name a JSON file") from None
    except RecursionError:
        raise InvalidFile(f"{str(path)!r} is nested too deeply", "name a file that oomph wrote") from None
    except ValueError:
        raise InvalidFile(f"{str(path)!r} holds a number that is none", "name a file that oomph wrote") from None


def dumps(data: object) -> str:
    """Write JSON that every program on every system can read: plain ASCII, and no NaN."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _refuse_constant(name: str) -> None:
    """Python's reader would take NaN and Infinity, which JSON doesn't have."""
    raise ValueError(name)


def _decode(wanted: Any, data: Any, place: str) -> Any:
    origin = get_origin(wanted)
    if origin in {Union, types.UnionType}:
        return _decode_union(wanted, data, place)
    if origin is tuple:
        return _decode_tuple(get_args(wanted)[0], data, place)
    if dataclasses.is_dataclass(origin or wanted):
        return _decode_dataclass(wanted, data, place)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        if data not in [member.value for member in wanted]:
            raise _Mismatch(place, "one of " + ", ".join(str(member.value) for member in wanted))
        return wanted(data)
    if wanted is Path:
        return Path(_decode_plain(str, data, place))
    return _decode_plain(wanted, data, place)


def _decode_plain(wanted: Any, data: Any, place: str) -> Any:
    if wanted is type(None) or wanted is None:
        accepted: tuple[type, ...] = (type(None),)
    elif wanted is float:
        accepted = (float, int)
    else:
        accepted = (wanted,)
    # JSON's true is an int to Python; a size of `true` is a damaged file.
    if not isinstance(data, accepted) or (isinstance(data, bool) and bool not in accepted):
        raise _Mismatch(place, f"a {getattr(wanted, '__name__', wanted)}")
    # A number that a float can't hold, or that no machine has, is a damaged file too.
    if isinstance(data, (int, float)) and not abs(data) < _BEYOND:
        raise _Mismatch(place, "a number of reasonable size")
    return data


def _decode_union(wanted: Any, data: Any, place: str) -> Any:
    for member in get_args(wanted):
        try:
            return _decode(member, data, place)
        except _Mismatch:  # noqa: PERF203  a union has two or three members
            continue
    names = " or ".join(getattr(member, "__name__", str(member)) for member in get_args(wanted))
    raise _Mismatch(place, names)


def _decode_tuple(item: Any, data: Any, place: str) -> Any:
    if not isinstance(data, list):
        raise _Mismatch(place, "a list")
    return tuple(_decode(item, value, f"{place}[{index}]") for index, value in enumerate(data))


def _decode_dataclass(wanted: Any, data: Any, place: str) -> Any:
    cls = get_origin(wanted) or wanted
    if not isinstance(data, dict):
        raise _Mismatch(place, f"an object ({cls.__name__})")
    names = {field.name for field in dataclasses.fields(cls)}
    if odd := sorted(names ^ data.keys()):
        raise _Mismatch(place, f"an object with exactly the fields of {cls.__name__}; {odd[0]!r} is off")
    bound = dict(zip(getattr(cls, "__parameters__", ()), get_args(wanted), strict=False))
    hints = {name: _bind(hint, bound) for name, hint in get_type_hints(cls).items()}
    return cls(**{name: _decode(hints[name], data[name], f"{place}.{name}".lstrip(".")) for name in names})


def _bind(hint: Any, bound: dict[Any, Any]) -> Any:
    """Put the arguments of a generic dataclass into the hint of one of its fields."""
    if hint in bound:
        return bound[hint]
    if get_origin(hint) in {Union, types.UnionType}:
        return Union[tuple(_bind(member, bound) for member in get_args(hint))]  # noqa: UP007  built at run time
    return hint
