from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oomph.detect import Gains, Order, OrderForm, Recipe, read_order
from oomph.detect.training._saved_config import ORDER, order_document
from oomph.errors import InvalidFile, MissingFile


def run_in(folder: Path, order: Order) -> Path:
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "state.pt").touch()
    (folder / ORDER).write_text(json.dumps(order_document(order)))
    return folder


def test_an_order_comes_back_whole_from_wherever_its_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = Recipe(rate=0.3, cosine=True, gains=Gains(box=0.1))
    asked = OrderForm(
        data=Path("ä b/data.yaml"), folder=Path("old"), weights=Path("w.pt"), batch=-1, allow=("size",), recipe=recipe
    )
    settled = replace(asked, batch=24, size=448, precision="fp32")
    folder = run_in(tmp_path / "elsewhere", Order(asked, settled))
    found = read_order(folder)
    assert found.asked == replace(asked, data=tmp_path / "ä b/data.yaml", weights=tmp_path / "w.pt", folder=folder)
    assert (found.settled.batch, found.settled.size, found.settled.precision) == (24, 448, "fp32")


def test_what_is_no_run_or_has_no_checkpoint_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no checkpoint in"):
        read_order(tmp_path)
    form = OrderForm(data=Path("d"), folder=Path("f"))
    folder = run_in(tmp_path / "before", Order(form, form))
    (folder / "weights" / "state.pt").rename(folder / "weights" / "state-before.pt")
    assert read_order(folder).asked.folder == folder
    folder = run_in(tmp_path / "run", Order(form, form))
    (folder / ORDER).write_text('{"oomph": "order", "version": 1, "asked": {}}')
    with pytest.raises(InvalidFile, match=r"order\.json can't be used: this order document is damaged"):
        read_order(folder)
    (folder / ORDER).unlink()
    with pytest.raises(MissingFile, match=r"order\.json"):
        read_order(folder)
