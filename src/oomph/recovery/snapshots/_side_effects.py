"""What a forward and backward change besides gradients, because a split step does that once per micro-batch."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from ...patches import has_attribute_state, is_internal
from ._snapshots import Restore, TensorCopies, local_shard, rng_states

_STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
_GENERATORS = {"torch": "torch", "cuda": "CUDA", "python": "Python", "numpy": "NumPy"}
_OTHER_HOOKS = ("torch.distributed.", "torch.nn.parallel.", "oomph.")  # DDP, FSDP and our own
_PLAIN_TYPES = (bool, int, float, complex, str, bytes)
_MAX_ITEMS = 1000  # of a container that are compared
_LOOKS = 2  # in the first one, caches are filled


@dataclass(frozen=True)
class SideEffect:
    """Something besides the gradient that a split changes.

    Attributes:
        kind: "buffer", "attribute", "gradient hook", "stray gradient" or "random".
        names: the buffers, attributes, parameters, modules or random generators.
        message: what a split changes and what to do about it, in one sentence.
    """

    kind: str
    names: tuple[str, ...]
    message: str


class SideEffects:
    """Finds what a forward and backward of one micro-batch change besides gradients.

    It compares everything by value, which takes milliseconds and waits for the device, so it is not for every step.

        effects = SideEffects(model)
        while not effects.is_done:  # in the first steps, and again in the first ones that are split
            effects.before()
            ...  # forward and backward of a micro-batch
            findings = effects.after()

    Args:
        model: the model.
        loss_modules: modules of the loss; their names begin with "loss.".
        device: where the forward draws random numbers.
        rewound: buffers that are the same for every micro-batch, such as those of a `SpectralNormSnapshot`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_modules: Iterable[nn.Module] = (),
        device: torch.device | None = None,
        rewound: Iterable[Tensor] = (),
    ) -> None:
        self._roots = [("", model), *(("loss", module) for module in loss_modules)]
        self._cuda = device if device is not None and device.type == "cuda" else None
        self._rewound = {id(tensor) for tensor in rewound}
        self._rng: Mapping[str, Any] = {}
        self._buffers: dict[str, Any] = {}
        self._attributes: dict[str, Any] = {}
        self._looks = 0
        self.is_done = False  # also after a look in which attributes or buffers got their first value

    def before(self) -> None:
        """Remember the state before the micro-batch."""
        self._buffers, self._attributes = self._observe()
        self._rng = rng_states(self._cuda)

    def after(self) -> tuple[SideEffect, ...]:
        """Return what the micro-batch changed, except for attributes and buffers that got their first value."""
        rng = rng_states(self._cuda)
        drawn = [name for key, name in _GENERATORS.items() if key in self._rng and not _same(self._rng[key], rng[key])]
        buffers, attributes = self._observe()
        self._looks += 1
        is_filled = _has_first_values(self._buffers, buffers) or _has_first_values(self._attributes, attributes)
        self.is_done = self._looks >= _LOOKS or not is_filled
        findings = (
            *_side_effects("buffer", _changes(self._buffers, buffers)),
            *_side_effects("attribute", _changes(self._attributes, attributes)),
            *_side_effects("gradient hook", [name for prefix, root in self._roots for name in _hooked(prefix, root)]),
            *_side_effects("random", drawn),
        )
        self._buffers, self._attributes, self._rng = {}, {}, {}
        return findings

    def _observe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return fingerprints of the buffers and of the attributes."""
        buffers: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        for prefix, root in self._roots:
            for path, module in root.named_modules(prefix=prefix):
                stem = f"{path}." if path else ""
                for name, buffer in module.named_buffers(recurse=False):
                    if id(buffer) not in self._rewound and not (isinstance(module, _NormBase) and name in _STATISTICS):
                        buffers[stem + name] = _fingerprint(buffer)
                for name, value in (
                    vars(module).items() if has_attribute_state(module) and not _is_metric(module) else ()
                ):
                    if not is_internal(name) and not (isinstance(value, Tensor) and value.requires_grad):
                        attributes[stem + name] = _fingerprint(value)
        return buffers, attributes


def _is_metric(module: nn.Module) -> bool:
    """Return True for metrics of torchmetrics, which add up over micro-batches."""
    return any(base.__module__.partition(".")[0] == "torchmetrics" for base in type(module).__mro__)


def stray_gradients(parameters: Iterable[tuple[str, Tensor]], computed: Collection[Tensor] = ()) -> SideEffect | None:
    """Return the parameters that have a gradient at the start of a step which the guard did not compute.

    Args:
        parameters: names and parameters.
        computed: the gradients that the guard left for a later update.
    """
    known = set(map(id, computed))
    names = [name for name, param in parameters if param.grad is not None and id(param.grad) not in known]
    return next(iter(_side_effects("stray gradient", names)), None)


class SpectralNormSnapshot:
    """The vectors of torch's spectral_norm, which each forward in training mode improves by a power iteration.

    Weights don't change within a step, so a micro-batch that starts with the vectors of the step's start iterates to
    the same ones as the whole batch: a split step is exact if the vectors are restored before each micro-batch.
    """

    def __init__(self, *modules: nn.Module) -> None:
        self._slots = list(itertools.chain.from_iterable(map(_vector_slots, modules)))
        self._copies = TensorCopies()

    @property
    def vectors(self) -> list[Tensor]:
        """Return the vectors."""
        return [module.get_buffer(name) for module, name in self._slots]

    def capture(self) -> Restore:
        """Copy the vectors."""
        return self._copies.capture(self.vectors) if self._slots else _do_nothing


class SplitEffects:
    """Looks for side effects in the first steps and the first split ones, and warns when a batch is first split.

    Args:
        observer: creates a `SideEffects`.
        warn: receives each message.
    """

    def __init__(self, observer: Callable[[], SideEffects], warn: Callable[[str], None]) -> None:
        self._observers = {False: observer(), True: observer()}  # of unsplit and split steps
        self._warn, self._messages = warn, list[str]()

    @contextlib.contextmanager
    def observe(self, *, is_split: bool) -> Iterator[None]:
        """Observe a forward and backward, unless enough of them have been observed."""
        if is_split:
            self._announce()
        observer = self._observers[is_split]
        if observer.is_done:
            yield
            return
        observer.before()
        yield
        self._messages += [effect.message for effect in observer.after()]
        if is_split:
            self._announce()

    def _announce(self) -> None:
        for message in self._messages:
            self._warn(message)
        self._messages.clear()


def _do_nothing() -> None:
    pass


def _vector_slots(root: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for module in root.modules():
        if isinstance(module, _SpectralNorm):
            yield from ((module, name) for name, _ in module.named_buffers(recurse=False))
        for hook in module._forward_pre_hooks.values():  # noqa: SLF001  spectral_norm's older form is a hook
            if isinstance(hook, SpectralNorm):
                yield from ((module, f"{hook.name}{suffix}") for suffix in ("_u", "_v"))


def _hooked(prefix: str, root: nn.Module) -> Iterator[str]:
    """Yield the names of parameters and modules whose gradients pass through hooks of the user."""
    for name, param in root.named_parameters(prefix=prefix):
        if _has_hooks(param, "_backward_hooks", "_post_accumulate_grad_hooks"):
            yield name
    for path, module in root.named_modules(prefix=prefix):
        if _has_hooks(module, "_backward_hooks", "_backward_pre_hooks"):
            yield path or type(module).__name__


def _has_hooks(owner: object, *tables: str) -> bool:
    hooks: list[Callable[..., Any]] = [hook for name in tables for hook in (getattr(owner, name, None) or {}).values()]
    return any(not _origin(hook).startswith(_OTHER_HOOKS) for hook in hooks)


def _origin(hook: Callable[..., Any]) -> str:
    while isinstance(hook, functools.partial):
        hook = hook.func
    return f"{getattr(hook, '__module__', '')}."


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [name for name, value in before.items() if value is not None and not _same(value, after.get(name))]


def _has_first_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return any(value is not None and before.get(name) is None for name, value in after.items())


@dataclass(frozen=True, eq=False)
class _TensorPrint:
    """The shape and type of a tensor with its bits, or with a checksum that practically no other values have."""

    shape: torch.Size
    dtype: torch.dtype
    value: Tensor

    def same(self, other: _TensorPrint) -> bool:
        is_like = self.shape == other.shape and self.dtype is other.dtype and self.value.device == other.value.device
        return is_like and torch.equal(self.value, other.value)


def _fingerprint(value: Any) -> Any:
    """Return something that `_same` can compare with a later fingerprint, without a copy of large tensors."""
    if isinstance(value, Tensor):
        return _TensorPrint(value.shape, value.dtype, _bits(value))
    if isinstance(value, Mapping):
        return [_item(item) for item in itertools.islice(itertools.chain(*value.items()), _MAX_ITEMS)] + [len(value)]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return [_item(item) for item in itertools.islice(value, _MAX_ITEMS)] + [len(value)]
    return value


def _item(value: Any) -> Any:
    return _fingerprint(value) if isinstance(value, Tensor) else value


_MAX_COPIED = 1 << 16  # words
_CHUNK = 1 << 15  # words whose products are in memory at a time
_WORDS = {1: torch.uint8, 2: torch.int16}  # by element size


@torch.no_grad()
def _bits(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor's bits (NaN is not equal to itself), or a checksum of a large one."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        return torch.tensor((id(tensor), 0 if tensor.is_inference() else tensor._version))  # noqa: SLF001  no public name
    tensor = local_shard(tensor.detach())
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    # Words of at most 32 bits, so that no change of a bit is lost when the checksum overflows.
    words = tensor.reshape(-1).view(_WORDS.get(tensor.element_size(), torch.int32))
    return words.clone() if len(words) <= _MAX_COPIED else _checksum(words)


def _checksum(words: Tensor) -> Tensor:
    """Sum up words with random weights."""
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, (_CHUNK,), generator=generator).to(words.device)
    for chunk in words.split(_CHUNK):
        total = total * 31 + (chunk * weights[: len(chunk)]).sum()
    return total


def _same(first: Any, second: Any) -> bool:
    """Compare fingerprints or random states."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, _TensorPrint):
        return first.same(second)
    if isinstance(first, Tensor):
        return torch.equal(first, second)
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(_same(value, second[name]) for name, value in first.items())
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_same, first, second))
    if hasattr(first, "tobytes"):  # an array of NumPy's random state
        return bool(first.tobytes() == second.tobytes())
    if isinstance(first, float) and first != first:  # noqa: PLR0124  NaN
        return bool(second != second)  # noqa: PLR0124
    return isinstance(first, _PLAIN_TYPES) and bool(first == second)


@dataclass(frozen=True)
class _Wording:
    """The beginning of a message about one name, that about several, and its end."""

    single: str
    several: str
    end: str


_WORDINGS = {
    "buffer": _Wording(
        "The buffer {name!r} is written",
        "{count} buffers (the first is {name!r}) are written",
        "in the forward, once per micro-batch instead of once per step, so a split step differs from an unsplit one; "
        "put that module into eval() mode, or write to the buffer after the step.",
    ),
    "attribute": _Wording(
        "The module attribute {name!r} changes",
        "{count} module attributes (the first is {name!r}) change",
        "in the forward, once per micro-batch instead of once per step, so a split step differs from an unsplit one "
        "where they are used; change them after the step.",
    ),
    "gradient hook": _Wording(
        "A hook on the gradient of {name!r} sees",
        "Hooks on the gradients of {count} parameters and modules (the first is {name!r}) see",
        "one micro-batch at a time, so a split step differs from an unsplit one unless the hook is linear (a mask is, "
        "clamping isn't); clip with clip_grad_norm=, or change gradients in a pre-step hook of the optimizer.",
    ),
    "stray gradient": _Wording(
        "The parameter {name!r} has a gradient",
        "{count} parameters (the first is {name!r}) have gradients",
        "at the start of the step that this guard didn't compute (a backward outside of it, or another guard), and the "
        "step adds to it; call zero_grad() before the step, or set requires_grad_(False) during the other backward.",
    ),
    "random": _Wording(
        "The forward draws random numbers of {names}",
        "The forward draws random numbers of {names}",
        "(dropout, noise, augmentation), other ones for each micro-batch than for the whole batch, so a split step "
        "differs from an unsplit one as with another seed; if they must be the same, draw them before the step and "
        "pass them in the batch.",
    ),
}


def _side_effects(kind: str, names: Sequence[str]) -> list[SideEffect]:
    """Return the finding about these names; the message has the first one and their number."""
    if not names:
        return []
    wording = _WORDINGS[kind]
    beginning = wording.single if len(names) == 1 else wording.several
    subject = beginning.format(name=names[0], count=len(names), names=" and ".join(names))
    return [SideEffect(kind, tuple(names), f"{subject} {wording.end}")]
