from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from oomph.trace._recurrent import Shape, flatten

FILE = Path(__file__).parents[2] / "benchmarks/results/recurrent-h200-2026-11-15.csv"
ROWS = list(csv.DictReader(FILE.read_text().splitlines()))
KINDS = {"LSTM": ("lstm", 4), "GRU": ("gru", 3), "RNN": ("rnn_tanh", 1)}


def shape_of(row: dict[str, str]) -> Shape:
    kind, gates = KINDS[row["kind"]]
    number = {name: int(row[name]) for name in ("batch", "length", "inputs", "hidden", "layers", "bidirectional")}
    directions, hidden = 1 + number["bidirectional"], number["hidden"]
    inputs = [number["inputs"], *[directions * hidden] * (number["layers"] - 1)]
    return Shape(
        kind=kind,
        batch=number["batch"],
        length=number["length"],
        inputs=number["inputs"],
        hidden=hidden,
        layers=number["layers"],
        directions=directions,
        element=4 if row["dtype"] == "float32" else 2,
        dropout=0.2,
        weights=sum(directions * gates * hidden * (size + hidden) for size in inputs),
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(list(row.values())[:8]))
def test_reserve_and_workspace_are_what_cudnn_asked_for(row: dict[str, str]) -> None:
    shape = shape_of(row)
    assert shape.reserve == int(row["reserve"])
    if shape.known:
        assert shape.workspace == pytest.approx(int(row["workspace"]), abs=4096)


def test_most_shapes_are_known() -> None:
    assert sum(shape_of(row).known for row in ROWS) >= 0.7 * len(ROWS)


def test_weights_come_to_the_gpu_as_one_tensor() -> None:
    layer = torch.nn.LSTM(8, 16, num_layers=2)
    names = list(dict(layer.named_parameters()))
    flatten(layer)
    assert list(dict(layer.named_parameters())) == names
    assert len({weight.untyped_storage().data_ptr() for weight in layer.parameters()}) == 1
    assert layer(torch.randn(3, 2, 8))[0].shape == (3, 2, 16)
