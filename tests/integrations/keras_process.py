"""Trains under a limit of the address space: `python -m tests.integrations.keras_process plain|guarded FOLDER`."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from pathlib import Path

import keras
import numpy as np
import torch

from oomph.integrations.keras import guarded
from oomph.monitor import load_record
from oomph.units import MIB


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    record = folder / "run.jsonl"

    def run(batch: int, size: int) -> None:
        layers = [keras.layers.Conv2D(32, 3, activation="relu") for _ in range(2)]
        pool = keras.layers.GlobalAveragePooling2D()
        model = keras.Sequential([keras.layers.Input((size, size, 3)), *layers, pool, keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        x, y = np.zeros((batch, size, size, 3), "float32"), np.zeros((batch, 3), "float32")
        record.unlink(missing_ok=True)
        with guarded(model, record=record) if kind == "guarded" else contextlib.nullcontext():
            model.fit(x, y, batch_size=batch, epochs=2, verbose=0)

    run(2, 16)  # torch and Keras allocate some memory once
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 400 * MIB, resource.RLIM_INFINITY))
    run(64, 192)
    if kind == "guarded":
        steps = load_record(record).steps
        (folder / "micro_batches.json").write_text(json.dumps([step["micro_batches"] for step in steps]))


if __name__ == "__main__":
    main()
