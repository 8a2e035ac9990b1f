"""Predict public runs on an RTX 3060, an RTX 4060 and an A100, and compare with the peaks that NVML saw.

python benchmarks/consumer_gpus.py predict --out predicted.jsonl [model …]
python benchmarks/consumer_gpus.py report predicted.jsonl …

The runs are rows of the public result files of xMem (Middleware 2025): torch 2.6, cuDNN 9.1, torchvision 0.21,
transformers 4.51, fp32, default allocator. NVML's peak counts from the first sample after the CUDA context exists. So
it is what torch reserved plus what libraries loaded later, which is one constant per GPU. The loop of those runs keeps
inputs, outputs and loss of an iteration until the next one replaces them; the steps below do the same. Predict with
transformers 4.51: later versions keep other tensors.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
RUNS = HERE / "results" / "consumer-gpus-runs.csv"
MIB = 2**20
TOKENS, SIDE = 128, 86
VISION = {
    "ConvNeXtBase": ("convnext_base", {}),
    "ConvNeXtTiny": ("convnext_tiny", {}),
    "MnasNet": ("mnasnet1_0", {"num_classes": 10}),
    "MobileNetV2": ("mobilenet_v2", {}),
    "VGG16": ("vgg16", {}),
}
_QWEN = {"vocab_size": 151936, "hidden_act": "silu"}
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "Cerebras-GPT-111M": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "n_layer": 10,
            "n_inner": 3072,
            "n_positions": 2048,
            "activation_function": "gelu",
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        },
    ),
    "gpt-neo-125M": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]},
    ),
    "T5-small": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "decoder_start_token_id": 0},
    ),
    "Qwen3-4B": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {
            **_QWEN,
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
        },
    ),
    "DeepSeek-R1-Distill-Qwen-1.5B": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {
            **_QWEN,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
        },
    ),
}


@dataclass(frozen=True)
class Run:
    """A public run.

    Attributes:
        model: name of the network.
        optimizer: class of the optimizer in `torch.optim`.
        batch: samples per step.
        gpu: name in the catalog.
        peak: highest minus first reading of NVML, in bytes.
        cap: the allocator's cap in a second run, in bytes.
        ran: True if the second run ended well.
    """

    model: str
    optimizer: str
    batch: int
    gpu: str
    peak: int
    cap: int
    ran: bool

    @property
    def family(self) -> str:
        """The model family, which is left out as a whole."""
        return "ConvNeXt" if self.model.startswith("ConvNeXt") else self.model


def read_runs(path: Path = RUNS) -> list[Run]:
    """Return the public runs."""
    with path.open(encoding="utf-8") as file:
        return [
            Run(
                row["model"],
                row["optimizer"],
                int(row["batch"]),
                row["gpu"],
                int(row["nvml_mib"]) * MIB,
                int(row["cap_mib"]) * MIB,
                row["ran"] == "1",
            )
            for row in csv.DictReader(file)
        ]


def _vision_parts(name: str) -> tuple[Callable[..., Any], ...]:
    import torch
    import torch.nn.functional as F
    from zoo.torchvision_shim import declare_operators

    constructor, options = VISION[name]
    kept: dict[str, Any] = {}  # as the variables of a loop, which live until the next iteration replaces them

    def model() -> Any:
        declare_operators()
        from torchvision import models

        return getattr(models, constructor)(**options)

    def batch(count: int, size: int) -> Any:
        return torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))

    def step(model: Any, batch: Any) -> Any:
        kept["batch"] = batch
        kept["outputs"] = model(batch[0])
        kept["loss"] = F.cross_entropy(kept["outputs"], batch[1])
        return kept["loss"]

    return model, batch, step


def _transformer_parts(name: str) -> tuple[Callable[..., Any], ...]:
    import torch
    import transformers

    model_class, config_class, options = TRANSFORMERS[name]
    kept: dict[str, Any] = {}

    def model() -> Any:
        return getattr(transformers, model_class)(getattr(transformers, config_class)(**options))

    def batch(count: int, size: int) -> Any:
        return torch.randint(0, 1000, (count, size)), torch.ones(count, size, dtype=torch.long)

    def step(model: Any, batch: Any) -> Any:
        kept["batch"] = batch
        kept["outputs"] = model(input_ids=batch[0], attention_mask=batch[1], labels=batch[0])
        return kept["outputs"].loss

    return model, batch, step


def predict_run(run: Run) -> dict[str, Any]:
    """Predict one run on its GPU with its versions."""
    import torch

    from oomph import Job, Settings, predict
    from oomph.machine import find_target

    parts = _vision_parts(run.model) if run.model in VISION else _transformer_parts(run.model)
    model, batch, step = parts
    job = Job(
        model=model,
        batch=batch,
        step=step,
        optimizer=lambda built: getattr(torch.optim, run.optimizer)(built.parameters(), lr=1e-3),
    )
    size = SIDE if run.model in VISION else TOKENS
    target = find_target(run.gpu, torch="2.6", cudnn="9.1")
    prediction = predict(job, Settings(batch=run.batch, size=size, allocator="default"), target)
    return {
        **asdict(run),
        **{name: _bounds(getattr(prediction, name)) for name in ("allocated", "reserved", "needed")},
    }


def _bounds(estimate: Any) -> dict[str, int]:
    return {name: int(getattr(estimate, name)) for name in ("low", "value", "high")}


def constants(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the constant of each GPU: the median of what NVML saw beyond `reserved`."""
    gaps = defaultdict(list)
    for row in rows:
        gaps[row["gpu"]].append(row["peak"] - row["reserved"]["value"])
    return {gpu: statistics.median(values) for gpu, values in gaps.items()}


def errors(rows: list[dict[str, Any]], constant: dict[str, float]) -> list[float]:
    """Return the relative errors of `reserved` plus the constant of the GPU."""
    return [(row["reserved"]["value"] + constant[row["gpu"]]) / row["peak"] - 1 for row in rows]


def inside(rows: list[dict[str, Any]], constant: dict[str, float]) -> int:
    """Return how many peaks are within the range of `reserved`, moved by the constant of the GPU."""
    return sum(row["reserved"]["low"] <= row["peak"] - constant[row["gpu"]] <= row["reserved"]["high"] for row in rows)


def contradictions(rows: list[dict[str, Any]]) -> int:
    """Return how many capped runs contradict the range of `needed`."""
    return sum(row["cap"] < row["needed"]["low"] if row["ran"] else row["cap"] >= row["needed"]["high"] for row in rows)


def report(rows: list[dict[str, Any]]) -> None:
    """Print errors by family, with constants of all runs and of the other families' runs."""
    families = sorted({Run(**{key: row[key] for key in Run.__annotations__}).family for row in rows})
    family_of = [Run(**{key: row[key] for key in Run.__annotations__}).family for row in rows]
    fitted = constants(rows)
    print("| family | runs | median error | errors | family left out: median error | family left out: inside |")
    print("|---|---|---|---|---|---|")
    left_out_errors: list[float] = []
    left_out_inside = 0
    for family in families:
        chosen = [row for row, name in zip(rows, family_of, strict=True) if name == family]
        others = {**fitted, **constants([row for row, name in zip(rows, family_of, strict=True) if name != family])}
        with_all, without = errors(chosen, fitted), errors(chosen, others)
        left_out_errors += without
        left_out_inside += inside(chosen, others)
        print(
            f"| {family} | {len(chosen)} | {_median(with_all):.1%} | {min(with_all):+.1%} to {max(with_all):+.1%} "
            f"| {_median(without):.1%} | {inside(chosen, others)} of {len(chosen)} |"
        )
    print(
        f"| all | {len(rows)} | {_median(errors(rows, fitted)):.1%} | | {_median(left_out_errors):.1%} "
        f"| {left_out_inside} of {len(rows)} |"
    )
    print("\nConstants: " + ", ".join(f"{gpu} {value / MIB:.0f} MiB" for gpu, value in fitted.items()))
    print(f"Capped runs that contradict the range of `needed`: {contradictions(rows)} of {len(rows)}")


def _median(values: list[float]) -> float:
    return statistics.median(abs(value) for value in values)


def main() -> None:
    """Predict runs, or report on predictions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("predict", "report"))
    parser.add_argument("names", nargs="*", help="models to predict, or files to report on")
    parser.add_argument("--out", type=Path, default=Path("predicted.jsonl"))
    options = parser.parse_args()
    if options.command == "report":
        report([json.loads(line) for name in options.names for line in Path(name).read_text().splitlines()])
        return
    with options.out.open("a", encoding="utf-8") as file:
        for run in read_runs():
            if not options.names or run.model in options.names:
                file.write(json.dumps(predict_run(run)) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
