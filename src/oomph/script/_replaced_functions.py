"""What a script doesn't do while it runs for a prediction: compile, save, load onto a GPU, and wait for other ranks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn

COMPILED = "the model is not compiled; with torch.compile it needs about as much memory or less"
ONE_RANK = "the script runs as the only rank of its process group; NCCL's memory is not included"


class ReplacedFunctions:
    """Functions of torch that are replaced while a script runs.

    `notes` holds a sentence for each that changes the prediction.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []

    @contextmanager
    def prevented(self) -> Iterator[None]:
        """Replace the functions."""
        originals = torch.compile, nn.Module.compile, torch.save, torch.load
        start_group = getattr(distributed, "init_process_group", None)  # absent from builds without torch.distributed
        torch.compile = self._compile
        nn.Module.compile = self._compile_module  # type: ignore[method-assign]
        torch.save = _discard
        torch.load = functools.partial(_load_on_host, torch.load)
        if start_group is not None:
            distributed.init_process_group = functools.partial(self._start_group, start_group)
        try:
            yield
        finally:
            torch.compile, nn.Module.compile, torch.save, torch.load = originals  # type: ignore[method-assign]
            if start_group is not None:
                distributed.init_process_group = start_group

    def _compile(self, model: Any = None, **_: Any) -> Any:
        self._note(COMPILED)
        return (lambda function: function) if model is None else model

    def _compile_module(self, *_: Any, **__: Any) -> None:
        self._note(COMPILED)

    def _start_group(self, start: Any, *_: Any, **__: Any) -> None:
        self._note(ONE_RANK)
        store = distributed.HashStore()  # type: ignore[attr-defined]
        start("gloo", store=store, rank=0, world_size=1)

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


def discard_safetensors() -> None:
    """Let safetensors write nothing, if the script has imported it: the weights have no values."""
    safetensors: Any = sys.modules.get("safetensors.torch")
    if safetensors is not None:
        safetensors.serialize_file = _discard


def _discard(*_: Any, **__: Any) -> None:
    """Save nothing."""


def _load_on_host(load: Any, file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    del map_location
    return load(file, "cpu", *args, **kwargs)
