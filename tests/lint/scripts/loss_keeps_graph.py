"""Trains a small net; prints the mean loss, and how many of the kept values still have a graph."""

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.MSELoss()
data = torch.randn(20, 16, 8)

total, history, stats = 0.0, [], {"loss": torch.zeros(())}
for x in data:
    optimizer.zero_grad()
    loss = criterion(model(x), x.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    total += loss * len(x)
    history.append(loss)
    stats["loss"] = stats["loss"] + loss

kept = [total, stats["loss"], *history]
print(sum(value.grad_fn is not None for value in kept))
print(f"{total.item():.6f} {stats['loss'].item():.6f} {sum(value.item() for value in history):.6f}")
print(f"{sum(parameter.sum().item() for parameter in model.parameters()):.6f}")
