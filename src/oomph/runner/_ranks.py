"""Agreement between the ranks of a run."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ._fault import Fault
from ._options import Options


class Ranks:
    """A run of one process: nobody to agree with."""

    is_first = True
    exchanges = False

    def __init__(self, model: nn.Module) -> None:
        self.inner = self.called = model
        self.asked: int | None = None

    def agree(self, fault: Fault | None, *, asked: int | None) -> Fault | None:
        """Whether all ranks succeeded: None, or what ran short here or elsewhere."""
        del asked
        return fault

    def all_agree(self, yes: bool) -> bool:  # noqa: FBT001  the question is the argument
        """Whether all ranks say yes."""
        return yes

    def prepare(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make room for the exchange, while a fault can still be recovered from."""

    def exchange(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients over the ranks."""

    def settle(self) -> None:
        """A step is done."""

    def leave(self, reason: str) -> None:
        """Tell the others why this rank ends."""

    def close(self) -> None:
        """Let go of everything."""


def find_ranks(model: nn.Module, options: Options) -> Ranks:
    """The ranks that a model is trained on."""
    del options
    return Ranks(model)
