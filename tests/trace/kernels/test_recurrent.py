from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from oomph.trace.kernels._recurrent import RecurrentShape, flatten_weights

FILE = Path(__file__).parents[3] / "benchmarks/results/recurrent-h200-2026-11-15.csv"
ROWS = list(csv.DictReader(FILE.read_text().splitlines()))
KINDS = {"LSTM": ("lstm", 4), "GRU": ("gru", 3), "RNN": ("rnn_tanh", 1)}


def recurrent_shape(row: dict[str, str]) -> RecurrentShape:
    kind, gates = KINDS[row["kind"]]
    number = {name: int(row[name]) for name in ("batch", "length", "inputs", "hidden", "layers", "bidirectional")}
    directions, hidden_size = 1 + number["bidirectional"], number["hidden"]
    inputs = [number["inputs"], *[directions * hidden_size] * (number["layers"] - 1)]
    return RecurrentShape(
        kind=kind,
        batch=number["batch"],
        length=number["length"],
        input_size=number["inputs"],
        hidden_size=hidden_size,
        layers=number["layers"],
        directions=directions,
        element_size=4 if row["dtype"] == "float32" else 2,
        dropout=0.2,
        weights=sum(directions * gates * hidden_size * (size + hidden_size) for size in inputs),
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(list(row.values())[:8]))
def test_reserve_and_workspace_match_cudnn(row: dict[str, str]) -> None:
    shape = recurrent_shape(row)
    assert shape.reserve == int(row["reserve"])
    if shape.is_exact:
        assert shape.workspace == pytest.approx(int(row["workspace"]), abs=4096)


def test_most_shapes_are_exact() -> None:
    assert sum(recurrent_shape(row).is_exact for row in ROWS) >= 0.7 * len(ROWS)


def test_flattened_weights_share_one_storage() -> None:
    layer = torch.nn.LSTM(8, 16, num_layers=2)
    names = list(dict(layer.named_parameters()))
    flatten_weights(layer)
    assert list(dict(layer.named_parameters())) == names
    assert len({weight.untyped_storage().data_ptr() for weight in layer.parameters()}) == 1
    assert layer(torch.randn(3, 2, 8))[0].shape == (3, 2, 16)
