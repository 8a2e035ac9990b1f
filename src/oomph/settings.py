"""How something is trained: the settings that are predicted, planned and run. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import WrongCall

PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16", "bf16")
MEMORY_FORMATS = ("contiguous", "channels_last")
ALLOCATORS = ("default", "expandable")

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
        allocator: torch's "default" caching allocator, or the same with "expandable" segments.
    """

    batch: int
    micro_batch: int | None = None
    size: Size = 0
    precision: str = "fp32"
    memory_format: str = "contiguous"
    allocator: str = "expandable"

    def __post_init__(self) -> None:
        _whole("batch", self.batch)
        if self.micro_batch is not None:
            _whole("micro_batch", self.micro_batch)
            if self.micro_batch > self.batch:
                raise WrongCall(
                    f"micro_batch {self.micro_batch} is larger than batch {self.batch}", "make it at most the batch"
                )
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("memory_format", self.memory_format, MEMORY_FORMATS)
        _one_of("allocator", self.allocator, ALLOCATORS)

    @property
    def pieces(self) -> tuple[int, ...]:
        """Samples of each piece that a batch is split into."""
        micro = self.micro_batch or self.batch
        whole, rest = divmod(self.batch, micro)
        return (micro,) * whole + ((rest,) if rest else ())


def parse_side(text: str) -> Size:
    """Read an image side or a sequence length: "640", or "640x480" as height and width.

    Raises:
        WrongCall: it is neither.
    """
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdigit() for part in parts):  # noqa: PLR2004  height and width
        raise WrongCall(f"size is {text!r}", "write a whole number, or height x width such as 640x480")
    sides = tuple(int(part) for part in parts)
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise WrongCall(f"{name} is {value!r}", "it must be a whole number of at least 1")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise WrongCall(f"{name} is {value!r}", f"it must be one of {', '.join(allowed)}")
