"""Gradient accumulation with autocast and a gradient scaler."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 4
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
loader = DataLoader(TensorDataset(torch.randn(512, 256), torch.randn(512, 256)), batch_size=64)
for index, (inputs, targets) in enumerate(loader):
    inputs, targets = inputs.cuda(), targets.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(inputs), targets) / ACCUMULATE
    scaler.scale(loss).backward()
    if (index + 1) % ACCUMULATE == 0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(f"{loss:.3f}", torch.cuda.max_memory_allocated())
