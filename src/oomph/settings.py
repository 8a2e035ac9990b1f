"""Training settings: the values that oomph predicts, plans and runs with. No torch."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from .errors import UsageError, quote
from .units import MIB

PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16", "bf16")
MEMORY_FORMATS = ("contiguous", "channels_last")
ALLOCATORS = ("default", "expandable")
CHECKPOINTING = ("none", "blocks")
OPTIMIZERS = ("given", "foreach", "fused", "single", "8bit")
PARALLEL = ("none", "ddp", "fsdp2")
MIN_OFFLOADED = MIB  # smaller tensors stay on the device

Size = int | tuple[int, int]

_SIZE_PATTERN = re.compile(r"(?P<height>\d{1,9})(?:x(?P<width>\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class Settings:
    """Settings that a Job is trained with.

    Attributes:
        batch: samples per optimizer step; of several ranks, those of each.
        micro_batch: samples per forward and backward pass; the whole batch if None. The last micro-batch may be
            smaller.
        size: the image side, (height, width) or the sequence length, passed to the Job's `batch`.
        precision: "fp32", "tf32", "amp-bf16", "amp-fp16" (autocast, with a gradient scaler for fp16) or "bf16"
            (weights too).
        memory_format: "contiguous" or "channels_last".
        allocator: torch's "default" caching allocator, the same with "expandable" segments, or options in the format
            of PYTORCH_ALLOC_CONF, such as "expandable_segments:True,max_split_size_mb:128".
        checkpointing: what is recomputed in the backward pass: "none", "blocks" for the model's repeated blocks, or the
            paths of modules.
        optimizer: the implementation of the optimizer's update: as "given" by the Job, "foreach", "fused", "single"
            (one tensor at a time), or "8bit" (states of Adam and AdamW in 8 bits, by torchao).
        passes: 2 if each micro-batch runs twice, as the guard does for a loss over the whole batch.
        loss_chunks: number of parts in which cross entropies are computed, so that less of the logits is copied.
        offload: paths of modules whose activations are in pinned host memory between forward and backward; "" is the
            whole model.
        parallel: how several ranks train together: "none", "ddp" (DistributedDataParallel) or "fsdp2" (`fully_shard` of
            the repeated blocks and of the model).
        ranks: number of ranks, one for each GPU.
    """

    batch: int
    micro_batch: int | None = None
    size: Size = 0
    precision: str = "fp32"
    memory_format: str = "contiguous"
    allocator: str = "expandable"
    checkpointing: str | tuple[str, ...] = "none"
    optimizer: str = "given"
    passes: int = 1
    loss_chunks: int = 1
    offload: tuple[str, ...] = ()
    parallel: str = "none"
    ranks: int = 1

    def __post_init__(self) -> None:
        _check_positive("batch", self.batch)
        if self.micro_batch is not None:
            _check_positive("micro_batch", self.micro_batch)
            if self.micro_batch > self.batch:
                raise UsageError(
                    f"micro_batch {self.micro_batch} is larger than batch {self.batch}",
                    "set micro_batch to at most the batch",
                )
        if self.passes not in {1, 2}:
            raise UsageError(f"passes is {quote(self.passes)}", "set it to 1 or 2")
        _check_positive("loss_chunks", self.loss_chunks)
        _check_choice("precision", self.precision, PRECISIONS)
        _check_choice("memory_format", self.memory_format, MEMORY_FORMATS)
        parse_allocator(self.allocator)
        _check_checkpointing(self.checkpointing)
        _check_offload(self.offload, self.checkpointing)
        _check_choice("optimizer", self.optimizer, OPTIMIZERS)
        self._check_ranks()

    def _check_ranks(self) -> None:
        _check_positive("ranks", self.ranks)
        _check_choice("parallel", self.parallel, PARALLEL)
        if (self.ranks > 1) != (self.parallel != "none"):
            raise UsageError(
                f"there are {self.ranks} ranks with parallel {quote(self.parallel)}",
                'set parallel to "ddp" or "fsdp2", and ranks to at least 2',
            )
        if self.parallel == "fsdp2" and self.memory_format != "contiguous":
            raise UsageError("fully_shard has only contiguous weights", 'set memory_format to "contiguous"')
        if self.parallel == "fsdp2" and self.optimizer == "8bit":
            raise UsageError("8-bit states of sharded weights are not supported", "use another optimizer setting")

    @property
    def micro_batch_sizes(self) -> tuple[int, ...]:
        """The sizes of the micro-batches that one batch is split into."""
        micro_batch = self.micro_batch or self.batch
        full, remainder = divmod(self.batch, micro_batch)
        return (micro_batch,) * full + ((remainder,) if remainder else ())


@dataclass(frozen=True)
class AllocatorConfig:
    """Options of torch's CUDA caching allocator that oomph models.

    Attributes:
        expandable: `expandable_segments`.
        max_split: `max_split_size_mb` in bytes: larger blocks are never split; None for no limit.
        non_split_rounding: `max_non_split_rounding_mb` in bytes: how much larger than the request a block that is not
            split may be.
        cap: bytes that the allocator may reserve, the limit of `set_per_process_memory_fraction`; None for no limit.
    """

    expandable: bool = False
    max_split: int | None = None
    non_split_rounding: int = 20 * MIB
    cap: int | None = None


def parse_allocator(text: str) -> AllocatorConfig:
    """Parse the allocator setting: "default", "expandable", or options in the format of PYTORCH_ALLOC_CONF.

    Raises:
        UsageError: an option that oomph does not model, or an invalid value.
    """
    if text in ALLOCATORS:
        return AllocatorConfig(expandable=text == "expandable")
    if ":" not in text:
        _check_choice("allocator", text, ALLOCATORS)
    options: dict[str, bool | int] = {}
    for item in text.split(","):
        name, _, value = (part.strip() for part in item.partition(":"))
        if name not in _ALLOCATOR_OPTIONS:
            raise UsageError(
                f"oomph does not model the allocator option {quote(name)}",
                f"use one of {', '.join(_ALLOCATOR_OPTIONS)}",
            )
        field, parse = _ALLOCATOR_OPTIONS[name]
        try:
            options[field] = parse(value)
        except (KeyError, ValueError):
            raise UsageError(
                f"the allocator option {name} is {quote(value)}", "write the value as in PYTORCH_ALLOC_CONF"
            ) from None
    return AllocatorConfig(**options)  # type: ignore[arg-type]


def environment_allocator() -> str:
    """Return the allocator that a training process in this environment has, if oomph models its options."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    text = next((os.environ[name] for name in names if os.environ.get(name)), "default")
    try:
        parse_allocator(text)
    except UsageError:
        return "default"
    return text


def _parse_megabytes(text: str) -> int:
    return int(text) * MIB


_ALLOCATOR_OPTIONS: dict[str, tuple[str, Callable[[str], bool | int]]] = {
    "expandable_segments": ("expandable", {"True": True, "False": False}.__getitem__),
    "max_split_size_mb": ("max_split", _parse_megabytes),
    "max_non_split_rounding_mb": ("non_split_rounding", _parse_megabytes),
}


def parse_sample_size(text: str) -> Size:
    """Parse `Settings.size`: an image side or a sequence length such as "640", or height and width such as "640x480".

    Raises:
        UsageError: the text has another form.
    """
    match = _SIZE_PATTERN.fullmatch(text.lower())
    if match is None:
        raise UsageError(f"the size is {quote(text)}", "write a whole number, or HEIGHTxWIDTH such as 640x480")
    height, width = match["height"], match["width"]
    return int(height) if width is None else (int(height), int(width))


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} is {quote(value)}", f"set {name} to a whole number of at least 1")


def _check_checkpointing(value: object) -> None:
    if isinstance(value, tuple):
        for path in value:
            if not isinstance(path, str) or not path:
                raise UsageError(f"checkpointing names {quote(path)}", "use paths from model.named_modules()")
    elif value not in CHECKPOINTING:
        raise UsageError(
            f"checkpointing is {quote(value)}",
            f"set checkpointing to one of {', '.join(CHECKPOINTING)}, or to a tuple of module paths",
        )


def _check_offload(value: object, checkpointing: str | tuple[str, ...]) -> None:
    if not isinstance(value, tuple):
        raise UsageError(f"offload is {quote(value)}", "set offload to a tuple of module paths")
    for path in value:
        if not isinstance(path, str):
            raise UsageError(f"offload names {quote(path)}", "use paths from model.named_modules()")
        if path in checkpointing and not isinstance(checkpointing, str):
            raise UsageError(f"checkpointing and offload both name {quote(path)}", "name it in one of them")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} is {quote(value)}", f"set {name} to one of {', '.join(choices)}")
