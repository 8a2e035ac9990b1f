"""Trains a small net; prints how often the cache was emptied, and the weights."""

import gc

import torch
import torch.nn as nn

calls = []
torch.cuda.empty_cache = lambda: calls.append(1)
torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for x in torch.randn(20, 16, 8):
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    gc.collect()
    torch.cuda.empty_cache()

print(len(calls) > 0)
print(f"{model.weight.sum().item():.6f}")
