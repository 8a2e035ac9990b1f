"""A restricted unpickler: it imports no module and calls no function that a file names.

It rebuilds plain containers, and describes tensors as `LazyTensor`. Instances of any other class become an
`OpaqueObject` with their class name and state. A pickle that needs anything else, such as a function call, is rejected.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

_MAX_REASON = 120
_MAX_INT = 2**62


class RejectedPickle(Exception):
    """The pickle contains something that a checkpoint never needs; the text completes "the file …"."""


class _ReadOnly:
    """Base of objects that a pickle may refer to but not modify."""

    __slots__ = ()

    def __setstate__(self, state: object) -> NoReturn:
        raise RejectedPickle("tries to modify the program that reads it")


class _SafeFunction(_ReadOnly):
    """A function that a pickle may call; wrapped, because plain functions have attributes that a pickle could set."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)


class _StorageType(_ReadOnly):
    """The element type of a storage."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


class _OpaqueType(type):
    """Metaclass of stand-ins for a file's classes: instances may be created, calls are rejected."""

    origin: str

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        raise RejectedPickle(f"tries to call {cls.origin} when it is read")


class OpaqueObject(metaclass=_OpaqueType):
    """An object of a class that wasn't imported.

    Attributes:
        origin: the class, as "module.name".
        state: the pickled state, usually a dict of attributes.
        items: content of objects that behave like lists or dicts.
    """

    origin = ""
    state: Any
    items: list[Any]

    def __new__(cls, *args: Any) -> Self:
        instance = object.__new__(cls)
        instance.state, instance.items = None, list(args)
        return instance

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Store a list item."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Store list items."""
        self.items.extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that is still in the file.

    Attributes:
        key: name of its storage.
        elements: size of the storage.
        dtype, offset, shape, stride: layout of the tensor in its storage.
    """

    key: str
    elements: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _StorageRef:
    key: str
    elements: int
    dtype: torch.dtype


def safe_unpickle(data: bytes) -> Any:
    """Unpickle the description of a checkpoint.

    Raises:
        RejectedPickle: it is damaged, or needs anything but plain data.
    """
    _check_opcodes(data)
    try:
        return _RestrictedUnpickler(io.BytesIO(data)).load()
    except RejectedPickle:
        raise
    except Exception as error:  # noqa: BLE001  a malformed pickle can raise anything
        raise RejectedPickle(f"can't be read as a checkpoint ({first_words(error)})") from None


def first_words(error: Exception) -> str:
    """Return an error's message on one line, truncated."""
    return " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__


_UNUSED_OPCODES = {"EXT1", "EXT2", "EXT4", "PERSID", "NEXT_BUFFER", "READONLY_BUFFER", "INST", "OBJ"}


def _check_opcodes(data: bytes) -> None:
    """Reject opcodes that checkpoints don't use, and memo indices that would allocate huge tables."""
    try:
        opcodes = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(data)]
    except Exception as error:  # noqa: BLE001  pickletools raises many kinds
        raise RejectedPickle(f"can't be read as a checkpoint ({first_words(error)})") from None
    for name, argument in opcodes:
        if name in _UNUSED_OPCODES:
            raise RejectedPickle(f"has the pickle opcode {name}, which checkpoints don't use")
        if name in {"PUT", "LONG_BINPUT"} and not 0 <= int(str(argument)) <= len(data):
            raise RejectedPickle("has an invalid memo index")


class _RestrictedUnpickler(pickle.Unpickler):
    """Builds plain containers, LazyTensors and OpaqueObjects."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of a name; nothing is imported."""
        allowed = _ALLOWED_NAMES.get((module, name))
        if allowed is not None:
            return allowed
        if module == "torch":
            torch_object = _torch_name(name)
            if torch_object is not None:
                return torch_object
        if module.partition(".")[0] in _DANGEROUS_MODULES:
            raise RejectedPickle(f"refers to {module}.{name}, which can execute code")
        return _OpaqueType("OpaqueObject", (OpaqueObject,), {"origin": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> _StorageRef:
        """Return the storage that a persistent id refers to."""
        tag, kind, key, _, elements = pid
        valid = isinstance(kind, _StorageType) and isinstance(key, str) and isinstance(elements, int)
        if tag != "storage" or not valid:
            raise RejectedPickle("has a persistent id that is not a storage")
        return _StorageRef(key, elements, kind.dtype)


def _torch_name(name: str) -> Any:
    if name.endswith("Storage"):
        dtype = _STORAGE_DTYPES.get(name.removesuffix("Storage"))
        return _StorageType(dtype) if dtype is not None else None
    attribute = getattr(torch, name, None) if name.isidentifier() else None
    return str(attribute) if isinstance(attribute, torch.dtype) else None


_STORAGE_DTYPES = {
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


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> LazyTensor:
    if not isinstance(storage, _StorageRef):
        raise RejectedPickle("has a tensor without a storage")
    numbers = (storage.elements, offset, *shape, *stride)
    if not all(type(number) is int and 0 <= number < _MAX_INT for number in numbers):
        raise RejectedPickle("has a tensor of an invalid shape")
    return LazyTensor(storage.key, storage.elements, storage.dtype, offset, tuple(shape), tuple(stride))


def _rebuild_parameter(data: Any, *_: Any) -> Any:
    return data


def _encode_text(text: Any, encoding: Any) -> Any:
    """Rebuild bytes, which pickle protocol 2 stores as latin-1 text."""
    return text.encode("latin1") if isinstance(text, str) and encoding == "latin1" else [text, encoding]


def _keep_arguments(*args: Any) -> list[Any]:
    """Represent NumPy scalars, paths and dates by their constructor arguments."""
    return list(args)


_ALLOWED_NAMES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    **{
        (module, kind.__name__): kind
        for module in ("builtins", "__builtin__")
        for kind in (dict, frozenset, list, set, tuple)
    },
    ("torch._utils", "_rebuild_tensor"): _SafeFunction(_rebuild_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _SafeFunction(_rebuild_tensor),
    ("torch._utils", "_rebuild_parameter"): _SafeFunction(_rebuild_parameter),
    ("torch._utils", "_rebuild_parameter_with_state"): _SafeFunction(_rebuild_parameter),
    ("_codecs", "encode"): _SafeFunction(_encode_text),
    ("torch", "Size"): _SafeFunction(tuple),
    **{
        name: _SafeFunction(_keep_arguments)
        for name in (
            ("torch", "device"),
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
# Rejected wherever they appear. Any other unknown name is rejected when it is called.
_DANGEROUS_MODULES = frozenset(
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
