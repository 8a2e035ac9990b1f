"""A small language model that draws its batches from an array, without a DataLoader, as nanoGPT does."""

import argparse
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for part in self.attention(self.norm1(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, width=128, heads=4, layers=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, tokens, targets=None):
        positions = torch.arange(0, tokens.size(1), dtype=torch.long, device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--device", default="cuda")
parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
parser.add_argument("--compile", action="store_true")
options = parser.parse_args()
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
device_type = "cuda" if "cuda" in options.device else "cpu"
context = nullcontext() if options.dtype == "float32" else torch.amp.autocast(device_type, dtype=torch.bfloat16)
data = np.random.default_rng(0).integers(0, 500, 10_000).astype(np.uint16)


def get_batch():
    starts = torch.randint(len(data) - options.length, (options.batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + options.length].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + options.length].astype(np.int64)) for i in starts])
    if device_type == "cuda":
        return x.pin_memory().to(options.device, non_blocking=True), y.pin_memory().to(
            options.device, non_blocking=True
        )
    return x.to(options.device), y.to(options.device)


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(3)
    for index in range(3):
        x, y = get_batch()
        losses[index] = model(x, y)[1].item()
    model.train()
    return losses.mean()


model = Gpt(500, options.length)
model.to(options.device)
scaler = torch.amp.GradScaler("cuda", enabled=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device_type == "cuda")
if options.compile:
    model = torch.compile(model)
x, y = get_batch()
step = 0
while step < 100:
    if step % 50 == 0:
        print(f"step {step}: {estimate_loss():.4f}")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ckpt.pt")
    with context:
        logits, loss = model(x, y)
    x, y = get_batch()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    step += 1
