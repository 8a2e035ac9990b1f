"""The batch size that a text states, and advice with it: half of it, or none about batches if it is 1 already."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ._kinds import Advice

_NUMBER = r"(?P<size>\d{1,6})(?!\d|\.\d| ?[/%x×])"
# "batch_size=16", "train_batch_size: 4", "batch size per device = 2", "the batch size is already 1", --batch 8, bs=4.
_SIZE = re.compile(
    r"(?i)(?P<kind>[\w ]{0,16})batch[ _-]?size(?:[ _]per[ _](?:device|gpu))?[\"'`]?"
    rf"(?:\s?[=:(]\s?|[^\d\n/,;=:()]{{0,24}}?[ 是为])[\"'`]?{_NUMBER}(?P<after>[^.\n]{{0,20}})"
)
_FLAG = re.compile(rf"(?<![\w-])(?:--(?:bs|batch)[= ]|(?:bs|batch)=){_NUMBER}")
_ACCUMULATION = re.compile(r"(?i)accumulation(?:[ _]steps)?[\"']?\W{0,4}([1-9]\d{0,4})\b")
_OF_OTHER_BATCHES = re.compile(r"(?i)eval|val_|valid|test|total|effective|global|writer")
_WORKS = re.compile(r"(?i)\b(?:works?|fits?|fine|runs|ok)\b")
_ABOUT_BATCHES = re.compile(r"(?:Use|Feed|Try) (?:slightly )?(?:smaller (?:micro-|mini-)?batch|half the batch)")
_SUBDIVISIONS = re.compile(r"subdivisions\W{1,3}([1-9]\d{0,3})\b")  # darknet's
# In commands of ours: a flag, an argument, or an entry of DeepSpeed's config.
_SIZE_IN_COMMAND = re.compile(r"((?:[\w-]*batch[-_]size\w*|\bbatch)(?:\": |=| = | ))\d+\b")
_ACCUMULATION_IN_COMMAND = re.compile(r"((?:gradient_accumulation_steps|accumulate_grad_batches)(?:\": |=| ))\d+")


@dataclass(frozen=True)
class StatedBatch:
    """The batch size in the words of a log or a post.

    Attributes:
        size: The samples of a batch; None if the text doesn't say.
        accumulation: Batches per update.
        subdivisions: Mini-batches per batch of darknet.
    """

    size: int | None = None
    accumulation: int = 1
    subdivisions: int = 1


def read_batch(text: str) -> StatedBatch:
    """Return the batch size that a text states; the smallest of several that failed."""
    sizes = [
        int(match["size"])
        for match in _SIZE.finditer(text)
        if not (_OF_OTHER_BATCHES.search(match["kind"]) or _WORKS.search(match["after"]))
    ]
    sizes += [int(match["size"]) for match in _FLAG.finditer(text)]
    size = min((size for size in sizes if size), default=None)
    steps, subdivisions = _ACCUMULATION.search(text), _SUBDIVISIONS.search(text)
    if size is not None and subdivisions:
        size = max(size // int(subdivisions[1]), 1)
    return StatedBatch(size, int(steps[1]) if steps else 1, int(subdivisions[1]) if subdivisions else 1)


def is_about_batches(advice: Advice) -> bool:
    """Return True if advice makes batches smaller."""
    return _ABOUT_BATCHES.match(advice.text) is not None


def with_batch(advice: Advice, batch: StatedBatch) -> Advice:
    """Return advice whose command has half of a stated batch size; one that is about something else keeps the size."""
    if "subdivisions=" in advice.command:
        return replace(advice, command=f"subdivisions={max(2 * batch.subdivisions, 32)}")
    if batch.size is None:
        return advice
    if not is_about_batches(advice):
        return replace(advice, command=_SIZE_IN_COMMAND.sub(rf"\g<1>{batch.size}", advice.command))
    command = _SIZE_IN_COMMAND.sub(rf"\g<1>{max(batch.size // 2, 1)}", advice.command)
    return replace(advice, command=_ACCUMULATION_IN_COMMAND.sub(rf"\g<1>{2 * batch.accumulation}", command))
