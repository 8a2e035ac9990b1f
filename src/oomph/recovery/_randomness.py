"""Random states: of torch on the CPU and on a device, of Python and of NumPy.

They are taken in every step, and all but a device's are long: torch copies its own number by number, Python and above
all NumPy build theirs so, in 10 and 75 microseconds. So these are asked only when the memory that they live in has
changed: their position, which each number moves, and their first words, all of which change when new ones are made or
somebody seeds.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from ..errors import UsageError

_HEAD = object.__basicsize__  # an object's own bookkeeping, such as the count of references to it
_FIRST = 64  # bytes of the words that are looked at
_WORDS = 4 * 624  # bytes of the words of the Mersenne Twister
_BEFORE, _BEHIND = 20, 28  # bytes around torch's that belong to its state
_HEADER, _WIDE = 24, 8  # bytes before the words in what torch tells of its state, and of each word there
_WITHIN = 512  # bytes of a generator in which its words begin

Print = tuple[Any, ...]


class Randomness:
    """A keeper of random states."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        own = torch.default_generator
        self._torch = _Seldom(own.get_state, _TorchPrint(own) if _torch_tells() else None)
        self._python = _Seldom(random.getstate, _PythonPrint(_python_generator()) if _python_tells() else None)
        self._numpy: _Seldom | None = None
        self._taken: dict[str, Any] = {}
        self._place: tuple[int, int] | None = None  # a device's seed, and how far it has come from there

    def take(self) -> None:
        """Remember them."""
        taken: dict[str, Any] = {"torch": self._torch.state(), "python": self._python.state()}
        if self._cuda is not None:
            own = _cuda_generator(self._cuda)
            self._place = own.initial_seed(), own.get_offset()
        if "numpy" in sys.modules:
            if self._numpy is None:
                self._numpy = _Seldom(_numpy_state, _NumpyPrint(_numpy_generator()) if _numpy_tells() else None)
            taken["numpy"] = self._numpy.state()
        self._taken = taken

    def put_back(self) -> None:
        """Set them."""
        set_random_states(self._taken, None)
        if self._cuda is not None and self._place is not None:
            seed, offset = self._place
            _cuda_generator(self._cuda).manual_seed(seed).set_offset(offset)

    def let_go(self) -> None:
        """Forget them."""
        self._taken, self._place = {}, None

    def __deepcopy__(self, memo: object) -> NoReturn:
        """A copy would look at a copy of memory, in which nothing is ever drawn.

        Raises:
            UsageError: always.
        """
        raise UsageError("a guard, or a transaction, can't be copied", "make another one for the copy of the model")


def random_states(cuda: torch.device | None) -> dict[str, Any]:
    """Every random state that a step may use."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.default_generator.get_state()}
    if cuda is not None:
        states["cuda"] = _cuda_generator(cuda).get_state()  # on the host in any case
    if "numpy" in sys.modules:
        states["numpy"] = _numpy_state()
    return states


def set_random_states(states: dict[str, Any], cuda: torch.device | None) -> None:
    """Set what `random_states` gave."""
    if "torch" in states:
        torch.set_rng_state(states["torch"])
    if "python" in states:
        random.setstate(states["python"])
    if cuda is not None and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], cuda)
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])


def _cuda_generator(cuda: torch.device) -> Any:
    # As torch.cuda.get_rng_state finds it.
    number: int | None = cuda.index
    return torch.cuda.default_generators[torch.cuda.current_device() if number is None else number]


def _numpy_state() -> Any:
    return sys.modules["numpy"].random.get_state(legacy=False)


class _Seldom:
    """A state that is slow to ask for, asked again only when its fingerprint is another one.

    Args:
        ask: for the state.
        fingerprint: of the state; None where nobody can tell.
    """

    def __init__(self, ask: Callable[[], Any], fingerprint: Callable[[], Print] | None) -> None:
        self._ask, self._fingerprint = ask, fingerprint
        self._print: Print | None = None
        self._state: Any = None

    def state(self) -> Any:
        """As it is now."""
        if self._fingerprint is None:
            return self._ask()
        found = self._fingerprint()
        if found != self._print:
            self._state, self._print = self._ask(), found
        return self._state


def _memory(address: int, size: int) -> ctypes.Array[ctypes.c_char]:
    """A stretch of memory, read and never written; made once, because that takes longer than to read it."""
    return (ctypes.c_char * size).from_address(address)


def _inside(thing: object, size: int | None = None) -> ctypes.Array[ctypes.c_char]:
    """What an object keeps in itself, or so much of it."""
    return _memory(id(thing) + _HEAD, type(thing).__basicsize__ - _HEAD if size is None else size)


class _TorchPrint:
    """Fingerprints of a generator of torch's, on the CPU.

    Before its words lie the seed and the position, and behind them the second normal number of a pair, if one is kept.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator  # held, as its memory is read
        words: int = generator._cdata + _torch_words()  # type: ignore[attr-defined]  # noqa: SLF001  the address
        self._first, self._behind = _memory(words - _BEFORE, _BEFORE + _FIRST), _memory(words + _WORDS, _BEHIND)

    def __call__(self) -> Print:
        return self._first.raw, self._behind.raw


class _PythonPrint:
    """Fingerprints of a generator of Python's."""

    def __init__(self, generator: Any) -> None:
        self._generator, self._words = generator, _inside(generator, _FIRST)  # the position is the first of them

    def __call__(self) -> Print:
        return self._words.raw, self._generator.gauss_next


class _NumpyPrint:
    """Fingerprints of a generator of NumPy's."""

    def __init__(self, generator: Any) -> None:
        self._generator, self._own = generator, _inside(generator)
        self._source: Any = None  # where its words come from: held, so that no other one can be in its place
        self._words: ctypes.Array[ctypes.c_char] | None = None
        self._position: ctypes.Array[ctypes.c_char] | None = None  # comes after all words

    def __call__(self) -> Print:
        source = self._generator._bit_generator  # noqa: SLF001  there is no public name for it
        if source is not self._source:
            known = type(source).__name__ == "MT19937"
            address = source.ctypes.state_address
            self._words = _memory(address, _FIRST) if known else None
            self._position = _memory(address + _WORDS, 4) if known else None
            self._source = source
        if self._words is None or self._position is None:
            return (object(),)  # somebody's own generator: like nothing that was seen before
        # The second normal number of each pair is kept in the generator itself, and taken without a new word.
        return self._own.raw, self._words.raw, self._position.raw


def _python_generator() -> Any:
    return random.getstate.__self__  # type: ignore[attr-defined]


def _numpy_generator() -> Any:
    return sys.modules["numpy"].random.get_state.__self__


@functools.cache
def _torch_words() -> int:
    """How far from its begin the words of a generator of torch's lie; -1 if that is nowhere near."""
    own = torch.Generator("cpu")
    own.manual_seed(0)
    told = bytes(own.get_state().tolist())
    words = b"".join(told[start : start + 4] for start in range(_HEADER, _HEADER + 8 * _WIDE, _WIDE))
    return _memory(own._cdata, _WITHIN).raw.find(words)  # type: ignore[attr-defined]  # noqa: SLF001  as above


@functools.cache
def _torch_tells() -> bool:
    """As `_python_tells`, of this torch."""
    if sys.implementation.name != "cpython" or not hasattr(torch.Generator, "_cdata") or _torch_words() < _BEFORE:
        return False
    own = torch.Generator("cpu")
    look = _TorchPrint(own)
    prints = [look()]
    for dtype in (torch.float32, torch.float64):
        for draw in (torch.rand, torch.randn, torch.randn):  # the second normal number was made with the first
            draw(1, generator=own, dtype=dtype, device="cpu")
            prints.append(look())
    for number in range(1, 3):
        own.manual_seed(number)
        prints.append(look())
    torch.rand(700, generator=own, device="cpu")  # more than there are words
    prints.append(look())
    return _all_differ(prints) and look() == prints[-1]


@functools.cache
def _python_tells() -> bool:
    """Whether this Python keeps its state where the fingerprint looks: tried on a generator of our own."""
    if sys.implementation.name != "cpython":
        return False
    own = random.Random(0)  # noqa: S311  no secrets
    look = _PythonPrint(own)
    prints = [look()]
    for draw in (own.random, own.gauss, lambda: own.seed(1)):
        draw()
        prints.append(look())
    return _all_differ(prints) and look() == prints[-1]


@functools.cache
def _numpy_tells() -> bool:
    """As `_python_tells`, of this NumPy."""
    if sys.implementation.name != "cpython":
        return False
    try:
        own = sys.modules["numpy"].random.RandomState(0)
        look = _NumpyPrint(own)
        prints = [look()]
        for draw in (own.random_sample, own.standard_normal, own.standard_normal, lambda: own.seed(1)):
            draw()
            prints.append(look())
        return _all_differ(prints) and look() == prints[-1]
    except AttributeError:
        return False


def _all_differ(prints: list[Any]) -> bool:
    return all(one != other for index, one in enumerate(prints) for other in prints[:index])
