"""Trains a small net and collects its outputs; prints how many of them still have a graph, and their sum."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.randn(20, 16, 8)

outputs, right = [], 0
for x in data:
    labels = x[:, :4].argmax(1)
    optimizer.zero_grad()
    out = model(x)
    loss = F.cross_entropy(out, labels)
    loss.backward()
    optimizer.step()
    right += (out.argmax(1) == labels).sum().item()
    outputs.append((out, labels))

print(sum(out.grad_fn is not None for out, _ in outputs))
print(right, f"{sum(out.sum().item() for out, _ in outputs):.6f}")
