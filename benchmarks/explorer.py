"""Compare the plan explorer's table with predictions at random positions of its controls.

python benchmarks/explorer.py [--positions 50] [name …]
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from oomph.detect import detection_job  # noqa: E402
from oomph.job import Job, load_job  # noqa: E402
from oomph.machine import find_target  # noqa: E402
from oomph.planner import PredictionTable, TableChoice, TablePosition, build_prediction_table  # noqa: E402
from oomph.prediction import predict  # noqa: E402
from oomph.settings import Settings  # noqa: E402

CLOSE = 2  # percent
MOST_MICRO_BATCHES = 8  # more take minutes to trace and change nothing


@dataclass(frozen=True)
class Case:
    """A Job with the settings and the GPU that its table is made for."""

    settings: Settings
    gpu: str


CASES = {
    "yolov5s": Case(Settings(batch=16, size=640), "RTX 3060"),
    "small_net": Case(Settings(batch=16, size=64), "RTX 3060"),
    "gpt-bf16": Case(Settings(batch=8, size=512), "A100 80GB"),
    "resnet50-fp32": Case(Settings(batch=32, size=224), "RTX 3060"),
}


def load(name: str) -> Job:
    """Return the Job of a case."""
    if name == "yolov5s":
        return detection_job("s")
    if name == "small_net":
        return load_job(f"{HERE.parent}/examples/jobs/small_net.py:job")
    from zoo import configs

    return configs()[name].job


def random_position(table: PredictionTable, rng: random.Random) -> TablePosition:
    """Return a position that the page offers."""

    def choose(choices: tuple[TableChoice, ...]) -> str:
        return rng.choice([choice.name for choice in choices if not choice.problem])

    batch = rng.choice(table.samples.values)
    micro_batches = [value for value in table.micro_batches(batch) if batch <= MOST_MICRO_BATCHES * value]
    return TablePosition(
        device=rng.choice(table.devices).name,
        batch=batch,
        micro_batch=rng.choice(micro_batches),
        size=rng.choice(table.sizes.values),
        precision=choose(table.precisions),
        checkpointing=choose(table.checkpointings),
        optimizer=choose(table.optimizers),
    )


def compare(name: str, positions: int) -> str:
    """Return a row: how long the table took, and how far it is from predictions."""
    case, start = CASES[name], time.perf_counter()
    table = build_prediction_table(functools.partial(load, name), case.settings, find_target(case.gpu), workers=2)
    seconds, job = time.perf_counter() - start, load(name)
    rng = random.Random(0)  # noqa: S311  positions, not secrets
    errors = []
    for _ in range(positions):
        position = random_position(table, rng)
        prediction = predict(job, table.settings_at(position), position.device)
        estimate = table.lookup(position)
        pairs = (
            (estimate.memory.value, prediction.device.value),
            (estimate.memory.high, prediction.device.high),
            (estimate.need.allocated, prediction.allocated.value),
            (estimate.seconds.value, prediction.seconds.value),
        )
        row = [100 * (ours / theirs - 1) for ours, theirs in pairs]
        errors.append(row)
        if max(map(abs, row)) > CLOSE:
            print(f"  {' '.join(f'{error:+.2f}' for error in row)} at {position}", flush=True)
    columns = (
        f"{sum(abs(error) <= CLOSE for error in column)}, largest {max(map(abs, column)):.1f} %"
        for column in zip(*errors, strict=True)
    )
    return f"| {name} | {case.gpu} | {seconds:.0f} s | {' | '.join(columns)} |"


def main() -> None:
    """Print one row per Job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=50)
    parser.add_argument("names", nargs="*", default=list(CASES))
    options = parser.parse_args()
    print("| Job | table for | built in | device | its high | allocated | seconds |\n|---|---|---|---|---|---|---|")
    for name in options.names:
        print(compare(name, options.positions), flush=True)


if __name__ == "__main__":
    main()
