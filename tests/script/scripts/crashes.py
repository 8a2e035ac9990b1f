"""A script with a bug in its loss."""

import torch
from torch import nn


def loss_of(outputs):
    return outputs.sum() / {}["missing"]


model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_of(model(torch.randn(3, 4, device="cuda"))).backward()
optimizer.step()
