"""How something is trained: the settings that are predicted, planned and run. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .errors import UsageError
from .units import MIB

PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16", "bf16")
MEMORY_FORMATS = ("contiguous", "channels_last")
ALLOCATORS = ("default", "expandable")
CHECKPOINTING = ("none", "blocks")
OPTIMIZERS = ("given", "foreach", "fused", "single")

Size = int | tuple[int, int]


@dataclass(frozen=True)
class Settings:
    """How a Job is trained.

    Attributes:
        batch: samples per optimizer step.
        micro_batch: samples per piece; the whole batch at once if None. The last piece may be smaller.
        size: the image side, (height, width), or the sequence length, as the Job's `batch` takes it.
        precision: "fp32", "tf32", "amp-bf16", "amp-fp16" (autocast, with a scaler for fp16) or "bf16" (weights too).
        memory_format: "contiguous" or "channels_last".
        allocator: torch's "default" caching allocator, or the same with "expandable" segments; or its knobs as
            PYTORCH_ALLOC_CONF has them, such as "expandable_segments:True,max_split_size_mb:128".
        checkpointing: "none", or "blocks": the repeated blocks of the model are run again in the backward pass.
        optimizer: the optimizer's variant: as "given" by the Job, or "foreach", "fused" or "single" tensors.
    """

    batch: int
    micro_batch: int | None = None
    size: Size = 0
    precision: str = "fp32"
    memory_format: str = "contiguous"
    allocator: str = "expandable"
    checkpointing: str = "none"
    optimizer: str = "given"

    def __post_init__(self) -> None:
        _whole("batch", self.batch)
        if self.micro_batch is not None:
            _whole("micro_batch", self.micro_batch)
            if self.micro_batch > self.batch:
                raise UsageError(
                    f"micro_batch {self.micro_batch} is larger than batch {self.batch}", "make it at most the batch"
                )
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("memory_format", self.memory_format, MEMORY_FORMATS)
        parse_allocator(self.allocator)
        _one_of("checkpointing", self.checkpointing, CHECKPOINTING)
        _one_of("optimizer", self.optimizer, OPTIMIZERS)

    @property
    def micro_batch_sizes(self) -> tuple[int, ...]:
        """Samples of each piece that a batch is split into."""
        micro = self.micro_batch or self.batch
        whole, rest = divmod(self.batch, micro)
        return (micro,) * whole + ((rest,) if rest else ())


@dataclass(frozen=True)
class AllocatorConfig:
    """Those knobs of torch's allocator that are modelled.

    Attributes:
        expandable: `expandable_segments`.
        max_split: `max_split_size_mb` in bytes; None if not set.
        non_split_rounding: `max_non_split_rounding_mb` in bytes.
    """

    expandable: bool = False
    max_split: int | None = None
    non_split_rounding: int = 20 * MIB


def parse_allocator(text: str) -> AllocatorConfig:
    """Read the allocator setting: "default", "expandable", or knobs as PYTORCH_ALLOC_CONF has them.

    Raises:
        UsageError: a knob that is not modelled, by name, or a value that is none.
    """
    if text in ALLOCATORS:
        return AllocatorConfig(expandable=text == "expandable")
    if ":" not in text:
        _one_of("allocator", text, ALLOCATORS)
    knobs: dict[str, bool | int] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition(":"))
        if name not in _KNOBS:
            raise UsageError(f"the allocator's knob {name!r} is not modelled", f"known are {', '.join(_KNOBS)}")
        field, read = _KNOBS[name]
        try:
            knobs[field] = read(value)
        except (KeyError, ValueError):
            words = f"the allocator's knob {name} is {value!r}"
            raise UsageError(words, "write it as PYTORCH_ALLOC_CONF does") from None
    return AllocatorConfig(**knobs)  # type: ignore[arg-type]


def _megabytes(text: str) -> int:
    return int(text) * MIB


_KNOBS: dict[str, tuple[str, Callable[[str], bool | int]]] = {
    "expandable_segments": ("expandable", {"True": True, "False": False}.__getitem__),
    "max_split_size_mb": ("max_split", _megabytes),
    "max_non_split_rounding_mb": ("non_split_rounding", _megabytes),
}


def parse_side(text: str) -> Size:
    """Read an image side or a sequence length: "640", or "640x480" as height and width.

    Raises:
        UsageError: it is neither.
    """
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdigit() for part in parts):  # noqa: PLR2004  height and width
        raise UsageError(f"size is {text!r}", "write a whole number, or height x width such as 640x480")
    sides = tuple(int(part) for part in parts)
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} is {value!r}", "it must be a whole number of at least 1")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}", f"it must be one of {', '.join(allowed)}")
