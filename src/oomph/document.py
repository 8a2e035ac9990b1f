"""Versioned JSON documents: frozen dataclasses to JSON and back, driven by their type hints.

The first key of a document is its kind: `{"oomph": "machine", "version": 1, …}`. Reading checks every field against its
type. A file from another version, or one edited by hand, raises an error with the path of the invalid field.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import InvalidFile, MissingFile, quote, shorten

T = TypeVar("T")

_MAX_NUMBER = 2**63


class _Mismatch(Exception):
    """A value does not have the type of its field."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path or 'the document'} should be {expected}")


def encode(value: object) -> Any:
    """Convert dataclasses, enums, paths, tuples and mappings into values that `json.dumps` accepts."""
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
    raise TypeError(f"a {type(value).__name__} can't be part of a document")


def write(kind: str, version: int, value: object) -> dict[str, Any]:
    """Return the document of a dataclass instance, as a dict."""
    return {"oomph": kind, "version": version, **encode(value)}


def read(kind: str, version: int, cls: type[T], data: object) -> T:
    """Return the dataclass instance that a document describes.

    Raises:
        InvalidFile: the document has another kind or version, or a field is missing or has the wrong type.
    """
    if not isinstance(data, dict) or data.get("oomph") != kind:
        other = data.get("oomph") if isinstance(data, dict) else None
        if isinstance(other, str):
            raise InvalidFile(f"this is an oomph document of kind {quote(other)}, not {kind!r}", "name another file")
        raise InvalidFile(f"this is not a {kind} document of oomph", "name another file")
    if data.get("version") != version:
        written = shorten(str(data.get("version")), 40)
        raise InvalidFile(
            f"this {kind} document has version {written}, but this version of oomph reads version {version}",
            "write it again with this version of oomph",
        )
    try:
        result = _decode(cls, {k: v for k, v in data.items() if k not in {"oomph", "version"}}, "")
    except _Mismatch as mismatch:
        raise InvalidFile(f"this {kind} document is damaged ({mismatch})", "write it again") from None
    assert isinstance(result, cls)  # noqa: S101  for the type checker
    return result


def load(path: Path) -> object:
    """Return the parsed JSON of a file.

    Raises:
        MissingFile: the file does not exist.
        InvalidFile: the file is not JSON.
    """
    try:
        # As bytes, json detects the encoding: PowerShell writes UTF-16, or UTF-8 with a byte-order mark.
        return json.loads(path.read_bytes(), parse_constant=_reject_constant)
    except FileNotFoundError:
        raise MissingFile(f"the file {str(path)!r} does not exist", "check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{str(path)!r} can't be read ({error})", "name a JSON file") from None
    except json.JSONDecodeError as error:
        raise InvalidFile(f"{str(path)!r} is not JSON (line {error.lineno})", "name a JSON file") from None
    except RecursionError:
        raise InvalidFile(f"{str(path)!r} is nested too deeply", "name a file that oomph wrote") from None
    except ValueError:  # also integers beyond Python's limit of 4300 digits
        raise InvalidFile(
            f"{str(path)!r} contains NaN, Infinity or a huge number", "name a file that oomph wrote"
        ) from None


def dumps(data: object) -> str:
    """Return JSON text that any program can read: ASCII only, without NaN."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _reject_constant(name: str) -> None:
    """Reject NaN and Infinity, which Python's parser accepts and the JSON standard does not."""
    raise ValueError(name)


def _decode(hint: Any, data: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        return _decode_union(hint, data, path)
    if origin is tuple:
        return _decode_tuple(get_args(hint), data, path)
    if origin is Mapping:
        return _decode_mapping(get_args(hint)[1], data, path)
    if dataclasses.is_dataclass(origin or hint):
        return _decode_dataclass(hint, data, path)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        if data not in [member.value for member in hint]:
            raise _Mismatch(path, "one of " + ", ".join(str(member.value) for member in hint))
        return hint(data)
    if hint is Path:
        return Path(_decode_plain(str, data, path))
    return _decode_plain(hint, data, path)


def _decode_plain(hint: Any, data: Any, path: str) -> Any:
    if hint is type(None) or hint is None:
        accepted: tuple[type, ...] = (type(None),)
    elif hint is float:
        accepted = (float, int)
    else:
        accepted = (hint,)
    # bool is a subclass of int, but `true` in place of a size means a damaged file.
    if not isinstance(data, accepted) or (isinstance(data, bool) and bool not in accepted):
        raise _Mismatch(path, f"a {getattr(hint, '__name__', hint)}")
    if isinstance(data, (int, float)) and not abs(data) < _MAX_NUMBER:
        raise _Mismatch(path, "a number below 2**63")
    return data


def _decode_union(hint: Any, data: Any, path: str) -> Any:
    for member in get_args(hint):
        try:
            return _decode(member, data, path)
        except _Mismatch:  # noqa: PERF203  a union has two or three members
            continue
    names = " or ".join(getattr(member, "__name__", str(member)) for member in get_args(hint))
    raise _Mismatch(path, names)


def _decode_tuple(items: tuple[Any, ...], data: Any, path: str) -> Any:
    if not isinstance(data, list):
        raise _Mismatch(path, "a list")
    hints = items[:1] * len(data) if items[-1] is Ellipsis else items
    if len(hints) != len(data):
        raise _Mismatch(path, f"a list of {len(hints)}")
    return tuple(
        _decode(hint, value, f"{path}[{index}]") for index, (hint, value) in enumerate(zip(hints, data, strict=True))
    )


def _decode_mapping(hint: Any, data: Any, path: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _Mismatch(path, "an object")
    return {key: _decode(hint, value, f"{path}.{shorten(key)}") for key, value in data.items()}


def _decode_dataclass(hint: Any, data: Any, path: str) -> Any:
    cls = get_origin(hint) or hint
    if not isinstance(data, dict):
        raise _Mismatch(path, f"an object ({cls.__name__})")
    names = {field.name for field in dataclasses.fields(cls)}
    if missing := sorted(names - data.keys()):
        raise _Mismatch(path, f"an object with the fields of {cls.__name__}; {missing[0]!r} is missing")
    if unknown := sorted(data.keys() - names):
        raise _Mismatch(path, f"an object with the fields of {cls.__name__}; {quote(unknown[0])} is unknown")
    type_arguments = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))
    hints = {name: _bind(field_hint, type_arguments) for name, field_hint in get_type_hints(cls).items()}
    return cls(**{name: _decode(hints[name], data[name], f"{path}.{name}".lstrip(".")) for name in names})


def _bind(hint: Any, type_arguments: dict[Any, Any]) -> Any:
    """Substitute the type arguments of a generic dataclass in the hint of one of its fields."""
    if hint in type_arguments:
        return type_arguments[hint]
    if get_origin(hint) in {Union, types.UnionType}:
        return Union[tuple(_bind(member, type_arguments) for member in get_args(hint))]  # noqa: UP007  built at run time
    return hint
