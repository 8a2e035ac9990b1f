"""Checkpoint files read as data: nothing that the file names is imported, and nothing that it asks to call is called.

A torch file is a zip of raw storages and a pickle that describes what they belong to. The pickle is read by an
unpickler that knows tensors, storages and plain containers. Instances of any other class become a `Record` of their
name and state. A file that asks for anything else, such as calling a function, is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from ...errors import MissingFile, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from 3.11 on

_LARGEST = 64 * 2**20  # bytes of a pickle; those of real checkpoints have less than one megabyte
_SAFE_FIX = "take the weights from their first source, and don't use this file"


class _Refused(Exception):
    """The file asks for what a checkpoint has no need of."""


class _Sealed:
    """What a file may refer to, but not change."""

    __slots__ = ()

    def __setstate__(self, state: object) -> NoReturn:
        raise _Refused("asks to change the program that reads it")


class _Caller(_Sealed):
    """A function that a file may call; not a plain one, because those have attributes."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)


class _Kind(_Sealed):
    """The element type of a storage."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


class _Foreign(type):
    """The type of stand-ins for classes that a file names: instances may be made, calls are refused."""

    origin: str

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        raise _Refused(f"asks to call {cls.origin} when it is read")


class Record(metaclass=_Foreign):
    """An object of a class that wasn't imported.

    Attributes:
        origin: the class, as "module.name".
        state: what it held, mostly a dict of its attributes.
        items: what was put into it, for lists and dicts of their own kind.
    """

    origin = ""
    state: Any
    items: list[Any]

    def __new__(cls, *args: Any) -> Self:
        record = object.__new__(cls)
        record.state, record.items = None, list(args)
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Keep an item of a list."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Keep items of a list."""
        self.items.extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


@dataclass(frozen=True)
class Stored:
    """A tensor that is still in the file.

    Attributes:
        key: of its storage; elements: how many that has.
        dtype, offset, shape, stride: how the tensor lies in it.
    """

    key: str
    elements: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Storage:
    key: str
    elements: int
    dtype: torch.dtype


class InertFile:
    """An open checkpoint: `content` is what its pickle describes, `tensor` brings one of its tensors into memory."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._root = self._find_root()
        self._check_order()
        self.content = _unpickle(self._read("data.pkl", _LARGEST))

    def tensor(self, stored: Stored) -> Tensor:
        """A tensor of its own memory; the zip's checksum is verified on the way."""
        _check_bounds(stored)
        size = stored.elements * stored.dtype.itemsize
        raw = self._read(f"data/{stored.key}", size)
        if len(raw) != size:
            raise _Refused(f"has {len(raw)} bytes where {size} belong")
        if not size:
            return torch.empty(stored.shape, dtype=stored.dtype)
        whole = torch.frombuffer(bytearray(raw), dtype=stored.dtype)
        return whole.as_strided(stored.shape, stored.stride, stored.offset).clone()

    def _find_root(self) -> str:
        names = [name for name in self._archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(names) != 1:
            raise _Refused("is a zip file but no checkpoint of torch")
        return names[0].removesuffix("data.pkl")

    def _check_order(self) -> None:
        if f"{self._root}byteorder" in self._archive.namelist() and self._read("byteorder", 16) != b"little":
            raise _Refused("was written on a big-endian machine")

    def _read(self, name: str, most: int) -> bytes:
        try:
            entry = self._archive.getinfo(self._root + name)
        except KeyError:
            raise _Refused(f"lacks its part {name}") from None
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > most:
            raise _Refused(f"has a part {name} that is compressed or too large")
        return self._archive.read(entry)


@contextmanager
def open_inert(path: Path) -> Iterator[InertFile]:
    """Open a checkpoint without executing anything from it.

    Raises:
        MissingFile: there is no such file.
        UsageError: it is no checkpoint, is damaged, or asks to run something.
    """
    try:
        with path.open("rb") as head:
            begin = head.read(4)
    except FileNotFoundError:
        raise MissingFile(f"there is no file '{path}'", "check the path") from None
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror})", "name a checkpoint file") from None
    if begin != b"PK\x03\x04":
        raise UsageError(
            f"{path} is no zip file, as torch has written them since 1.6",
            "save it anew with a torch of today, where it comes from",
        )
    try:
        with zipfile.ZipFile(path) as archive:
            yield InertFile(path, archive)
    except _Refused as refused:
        raise UsageError(f"{path} {refused}", _SAFE_FIX) from None
    except RecursionError:
        raise UsageError(f"{path} holds objects inside objects without an end", _SAFE_FIX) from None
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise UsageError(f"{path} is damaged ({_words(error)})", "copy or download it again") from None


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def _unpickle(data: bytes) -> Any:
    _check_instructions(data)
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except _Refused:
        raise
    except Exception as error:  # noqa: BLE001  whatever an odd pickle does to the unpickler, it is an odd pickle
        raise _Refused(f"can't be read as a checkpoint ({_words(error)})") from None


_UNNEEDED = {"EXT1", "EXT2", "EXT4", "PERSID", "NEXT_BUFFER", "READONLY_BUFFER", "INST", "OBJ"}


def _check_instructions(data: bytes) -> None:
    """Refuse what no checkpoint has, before anything is built; a place in the memo costs memory up to its number."""
    try:
        codes = [(code.name, argument) for code, argument, _ in pickletools.genops(data)]
    except Exception as error:  # noqa: BLE001  pickletools raises many kinds
        raise _Refused(f"can't be read as a checkpoint ({_words(error)})") from None
    for name, argument in codes:
        if name in _UNNEEDED:
            raise _Refused(f"has the instruction {name}, which checkpoints don't use")
        if name in {"PUT", "LONG_BINPUT"} and not 0 <= int(str(argument)) <= len(data):
            raise _Refused("refers to a place that it can't have")


class _Unpickler(pickle.Unpickler):
    """Builds plain containers, descriptions of tensors, and records."""

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a name of the file; nothing is imported."""
        known = _KNOWN.get((module, name))
        if known is not None:
            return known
        if module == "torch":
            kind = _torch_name(name)
            if kind is not None:
                return kind
        if module.partition(".")[0] in _DANGEROUS:
            raise _Refused(f"asks for {module}.{name}, which can run things")
        return _Foreign("Record", (Record,), {"origin": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> _Storage:
        """The storage that a reference of the file means."""
        tag, kind, key, _, elements = pid
        if tag != "storage" or not isinstance(kind, _Kind) or not isinstance(key, str) or not isinstance(elements, int):
            raise _Refused("refers to something that is no storage")
        return _Storage(key, elements, kind.dtype)


def _torch_name(name: str) -> Any:
    if name.endswith("Storage"):
        dtype = _STORAGES.get(name.removesuffix("Storage"))
        return _Kind(dtype) if dtype is not None else None
    found = getattr(torch, name, None) if name.isidentifier() else None
    return str(found) if isinstance(found, torch.dtype) else None


_STORAGES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> Stored:
    if not isinstance(storage, _Storage):
        raise _Refused("has a tensor without a storage")
    numbers = (storage.elements, offset, *shape, *stride)
    if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
        raise _Refused("has a tensor of an impossible shape")
    return Stored(storage.key, storage.elements, storage.dtype, offset, tuple(shape), tuple(stride))


def _check_bounds(stored: Stored) -> None:
    """A tensor must lie inside its storage and can't be larger: a stride of 0 would make terabytes of a byte."""
    reach = stored.offset + sum((side - 1) * step for side, step in zip(stored.shape, stored.stride, strict=True))
    count = math.prod(stored.shape)
    if count and (reach >= stored.elements or count > stored.elements):
        raise _Refused("has a tensor that lies outside its storage")


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _kept(*args: Any) -> list[Any]:
    """Numpy's numbers, paths, dates: kept as what they were made from."""
    return list(args)


_KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    **{
        (module, kind.__name__): kind
        for module in ("builtins", "__builtin__")
        for kind in (dict, frozenset, list, set, tuple)
    },
    ("torch._utils", "_rebuild_tensor"): _Caller(_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _Caller(_tensor),
    ("torch._utils", "_rebuild_parameter"): _Caller(_parameter),
    ("torch._utils", "_rebuild_parameter_with_state"): _Caller(_parameter),
    ("torch", "Size"): _Caller(tuple),
    **{
        name: _Caller(_kept)
        for name in (
            ("torch", "device"),
            ("_codecs", "encode"),
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy.core.multiarray", "scalar"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "scalar"),
            ("datetime", "date"),
            ("datetime", "datetime"),
            ("datetime", "timedelta"),
            ("pathlib", "PosixPath"),
            ("pathlib", "PurePosixPath"),
            ("pathlib", "PureWindowsPath"),
            ("pathlib", "WindowsPath"),
        )
    },
}
# Refused wherever they appear; everything else that is unknown is refused when it is called.
_DANGEROUS = frozenset(
    (
        "__builtin__",
        "_pickle",
        "asyncio",
        "builtins",
        "cloudpickle",
        "code",
        "codeop",
        "commands",
        "concurrent",
        "ctypes",
        "dill",
        "imp",
        "importlib",
        "io",
        "joblib",
        "linecache",
        "marshal",
        "multiprocessing",
        "nt",
        "os",
        "pdb",
        "pickle",
        "pkgutil",
        "platform",
        "posix",
        "posixpath",
        "profile",
        "pty",
        "pydoc",
        "runpy",
        "shelve",
        "shutil",
        "signal",
        "site",
        "socket",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "timeit",
        "trace",
        "urllib",
        "webbrowser",
        "zipimport",
    )
)


def materialise(file: InertFile, value: Any, made: dict[int, Any] | None = None) -> Any:
    """Plain content with its tensors in memory; what is there twice is made once.

    Raises:
        UsageError: it holds an object that is no plain data.
    """
    made = {} if made is None else made
    if id(value) not in made:
        made[id(value)] = _materialise(file, value, made)
    return made[id(value)]


def _materialise(file: InertFile, value: Any, made: dict[int, Any]) -> Any:
    if isinstance(value, Stored):
        return file.tensor(value)
    if isinstance(value, dict):
        return {key: materialise(file, item, made) for key, item in value.items()}
    if isinstance(value, list):
        return [materialise(file, item, made) for item in value]
    if isinstance(value, tuple):
        return tuple(materialise(file, item, made) for item in value)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    raise UsageError(f"the file holds a {getattr(value, 'origin', type(value).__name__)}", "save plain tensors")
