from __future__ import annotations

import csv
from pathlib import Path

import pytest

from oomph.trace._recurrent import Shape

FILE = Path(__file__).parents[2] / "benchmarks/results/recurrent-h200-2026-11-15.csv"
ROWS = list(csv.DictReader(FILE.read_text().splitlines()))
KINDS = {"LSTM": ("lstm", 4), "GRU": ("gru", 3), "RNN": ("rnn_tanh", 1)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(list(row.values())[:8]))
def test_the_reserve_is_what_cudnn_asked_for(row: dict[str, str]) -> None:
    kind, gates = KINDS[row["kind"]]
    number = {name: int(row[name]) for name in ("batch", "length", "inputs", "hidden", "layers", "bidirectional")}
    directions, hidden = 1 + number["bidirectional"], number["hidden"]
    inputs = [number["inputs"], *[directions * hidden] * (number["layers"] - 1)]
    shape = Shape(
        kind=kind,
        batch=number["batch"],
        length=number["length"],
        hidden=hidden,
        layers=number["layers"],
        directions=directions,
        element=4 if row["dtype"] == "float32" else 2,
        dropout=0.2,
        weights=sum(directions * gates * hidden * (size + hidden) for size in inputs),
    )
    assert shape.reserve == int(row["reserve"])
    assert shape.workspace > 0
