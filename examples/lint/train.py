"""A training script with four mistakes that `oomph lint` finds."""

import torch
from torch import nn

model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(10)]
accumulate = 4
total = 0.0

for i, (images, targets) in enumerate(loader):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(images), targets) / accumulate
    loss.backward()
    total += loss
    if (i + 1) % accumulate == 0:
        optimizer.step()
    torch.cuda.empty_cache()

print(f"loss {total / len(loader):.3f}")
