"""A script that computes gradients and never uses them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (images,) in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8):
    model(images.cuda()).sum().backward()
