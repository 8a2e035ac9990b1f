"""Commands that run out of GPU memory for real and are started again by `oomph run --retry`.

    python benchmarks/retried_commands.py [--out rows.jsonl] [--small]

- plain: a script with placeholders whose batch is too large for the GPU from the first step on.
- trainer: a script with transformers' arguments whose samples are longer from the sixth step on, so that it continues a
  checkpoint. Nothing is downloaded.
- explained: the same without --retry: exit code and explanation.

`--small` caps the allocator at 4 GiB, and makes the batches smaller.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
PLAIN = """
import sys, torch
cap, size, batch, accumulate = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
if cap:
    torch.cuda.set_per_process_memory_fraction(cap)
layers = [layer for _ in range(8) for layer in (torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU())]
net = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(5):
    for _ in range(accumulate):
        net(torch.randn(batch, 32, size, size, device="cuda")).square().mean().div(accumulate).backward()
    optimizer.step()
    optimizer.zero_grad()
print("finished", batch, accumulate, torch.cuda.max_memory_allocated(), flush=True)
"""
TRAINER = """
import os, torch
from transformers import BertConfig, BertForMaskedLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
if cap := float(os.environ["CAP"]):
    torch.cuda.set_per_process_memory_fraction(cap)
torch.manual_seed(0)
batch, length = int(os.environ["EFFECTIVE"]), int(os.environ["LENGTH"])
data = [torch.randint(5, 30000, (length if n >= 5 * batch else length // 16,)) for n in range(10 * batch)]
class InOrder(Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)
trainer = InOrder(
    BertForMaskedLM(BertConfig()), args, train_dataset=[{"input_ids": ids, "labels": ids} for ids in data]
)
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
print("finished", trainer.state.global_step, torch.cuda.max_memory_allocated(), flush=True)
"""


def run(name: str, options: list[str], command: list[str], **variables: str) -> dict[str, Any]:
    """Run a script under `oomph run`; return what happened."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text({"trainer": TRAINER}.get(name, PLAIN))
        path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
        words = [
            sys.executable,
            "-m",
            "oomph",
            "run",
            *options,
            "--json",
            "result.json",
            "--",
            sys.executable,
            "train.py",
        ]
        start = time.monotonic()
        ended = subprocess.run(
            [*words, *command], cwd=folder, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": path, **variables},
        )  # fmt: skip
        seconds = time.monotonic() - start
        result = json.loads((Path(folder) / "result.json").read_text()) if ended.returncode != 2 else {}
    notes = [line for line in ended.stderr.splitlines() if line.startswith("oomph:")]
    return {
        "command": name,
        "exit_code": ended.returncode,
        "seconds": round(seconds, 1),
        "attempts": [[each["failure"], each["exit_code"], each["argv"][2:]] for each in result.get("attempts", [])],
        "finished": [line for line in ended.stdout.splitlines() if line.startswith("finished")],
        "notes": notes or ended.stderr.splitlines()[-3:],
    }


def main() -> None:
    """Print one line per command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    cap = 4 * 2**30 / total if options.small else 0.0
    batch, size, effective, length = (64, 128, 64, 128) if options.small else (2048, 256, 2048, 512)
    plain = [str(cap), str(size), "{batch}", "{accumulate}"]
    trainer = (
        f"--output_dir out --per_device_train_batch_size {effective} --save_steps 5 --max_steps 10 --bf16 True "
        "--report_to none --disable_tqdm True"
    )
    variables = {"CAP": str(cap), "EFFECTIVE": str(effective), "LENGTH": str(length), "HF_HUB_OFFLINE": "1"}
    rows: list[dict[str, Any]] = [
        {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")},
        run("plain", ["--retry", "--batch", str(batch)], plain),
        run("explained", ["--batch", str(batch)], plain),
        run("trainer", ["--retry"], trainer.split(), **variables),
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    print(lines)
    if options.out is not None:
        options.out.write_text(lines)


if __name__ == "__main__":
    main()
