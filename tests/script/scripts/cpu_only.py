"""A script that never mentions a GPU, and whose optimizer has tensors that belong to no module."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.GRU(16, 32, batch_first=True)
scale = torch.ones(32, requires_grad=True)
optimizer = torch.optim.Adam([*model.parameters(), scale])
for (inputs,) in DataLoader(TensorDataset(torch.randn(24, 10, 16)), batch_size=8):
    outputs, _ = model(inputs)
    loss = (outputs * scale).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.detach().numpy())
