"""What a run was asked to do, saved in its folder, so that it can be resumed without being told again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import document
from ...errors import InvalidFile, MissingFile
from ._config import OrderForm
from ._run_dir import STATES

ORDER = "order.json"
_KIND, _VERSION = "order", 1


@dataclass(frozen=True)
class Order:
    """A run's order.

    Attributes:
        asked: as it was asked for.
        settled: with the batch, size and precision that the plan decided on, which a resumed run keeps.
    """

    asked: OrderForm
    settled: OrderForm


def order_document(order: Order) -> dict[str, Any]:
    """An order as it is saved; paths hold from anywhere."""
    return document.write(_KIND, _VERSION, Order(_absolute(order.asked), _absolute(order.settled)))


def read_order(folder: Path) -> Order:
    """The order of the run in a folder, wherever that is by now.

    Raises:
        MissingFile: no run was begun there, or it ended before its first checkpoint.
        InvalidFile: its order can't be read.
    """
    if not any((folder / "weights" / name).is_file() for name in STATES):
        raise MissingFile(f"there is no checkpoint in '{folder}'", "name the folder of another run, or start anew")
    try:
        order = document.read(_KIND, _VERSION, Order, document.load(folder / ORDER))
    except InvalidFile as error:
        raise InvalidFile(f"{folder / ORDER} can't be used: {error.why}", "start anew") from None
    return Order(replace(order.asked, folder=folder), replace(order.settled, folder=folder))


def _absolute(form: OrderForm) -> OrderForm:
    weights = None if form.weights is None else form.weights.absolute()
    return replace(form, data=form.data.absolute(), folder=form.folder.absolute(), weights=weights)
