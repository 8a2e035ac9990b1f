"""One of eight ranks that train a model of a billion parameters: what is predicted, and what a GPU needs.

    python benchmarks/sharded.py                  # predictions for an H200, on any machine
    python benchmarks/sharded.py --measure        # on a machine with one GPU, beside what it allocates

The rank of FSDP2 runs in torch's `fake` process group of eight ranks: shards, gathered weights and their lifetimes are
those of eight GPUs, and what is gathered is not filled. A rank of DDP is a whole model with its buckets, so that NCCL
with one rank will do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch
from torch import Tensor, nn

import oomph

WIDTH, LAYERS, HEADS, VOCABULARY, LENGTH = 2048, 16, 16, 50257, 1024
STEPS, RANKS = 3, 8


class Block(nn.Module):
    """A block of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        outputs: Tensor = x + self.narrow(nn.functional.gelu(self.wide(self.other_norm(x))))
        return outputs


class Gpt(nn.Module):
    """A network of GPT-2's kind with 1.01 billion parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def make_tokens(samples: int, length: Any) -> tuple[Tensor, Tensor]:
    """Return random tokens and their targets."""
    return torch.randint(0, VOCABULARY, (samples, length)), torch.randint(0, VOCABULARY, (samples, length))


def compute_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of all tokens."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW, whose updates are torch's multi-tensor kernels."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def all_settings() -> list[oomph.Settings]:
    """Return what is predicted and measured."""
    common = oomph.Settings(batch=8, size=LENGTH, precision="amp-bf16", ranks=RANKS, parallel="fsdp2")
    return [
        replace(common, parallel="ddp"),
        common,
        replace(common, micro_batch=2),
        replace(common, checkpointing="blocks"),
    ]


def predict(settings: oomph.Settings) -> dict[str, Any]:
    """Return predicted GiB for an H200."""
    job = oomph.Job(model=Gpt, batch=make_tokens, loss=compute_loss, optimizer=make_optimizer)
    prediction = oomph.predict(job, settings, "H200")
    sizes = {name: getattr(prediction, name).value for name in ("allocated", "reserved", "needed")}
    return {name: round(size / 2**30, 3) for name, size in {**sizes, **dict(prediction.peak.kinds)}.items()}


def build(settings: oomph.Settings) -> nn.Module:
    """Build the rank's model on the GPU."""
    from torch import distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from oomph.patches import apply_checkpointing

    torch.cuda.set_device(0)
    model = Gpt()
    apply_checkpointing(model, settings.checkpointing)
    if settings.parallel == "ddp":
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group("nccl", store=store, rank=0, world_size=1)
        return nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[0])
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=settings.ranks)
    mesh = init_device_mesh("cuda", (settings.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def measure(settings: oomph.Settings) -> dict[str, Any]:
    """Run steps on this machine's GPU."""
    model = build(settings)
    optimizer = make_optimizer(model)
    torch.cuda.reset_peak_memory_stats()
    sizes = settings.micro_batch_sizes
    for _ in range(STEPS):
        for size in sizes:
            inputs, targets = (tokens.cuda() for tokens in make_tokens(size, LENGTH))
            with torch.autocast("cuda", torch.bfloat16):
                loss = compute_loss(model(inputs), targets)
            (loss / len(sizes)).backward()
            del inputs, targets, loss
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    stats = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    return {name: round(size / 2**30, 3) for name, size in stats.items()}


def main() -> None:
    """Print a line of JSON for each of the settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="also run on this machine's GPU")
    parser.add_argument("--only", type=int, help="measure one of the settings in this process")
    arguments = parser.parse_args()
    if arguments.only is not None:
        print(json.dumps(measure(all_settings()[arguments.only])))
        return
    for number, settings in enumerate(all_settings()):
        row: dict[str, Any] = {"settings": asdict(settings), "predicted_gib": predict(settings)}
        if arguments.measure:
            environment = {**os.environ, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
            command = [sys.executable, __file__, "--only", str(number)]
            result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            output = result.stdout.splitlines()
            row["measured_gib"] = json.loads(output[-1]) if result.returncode == 0 else result.stderr[-500:]
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
