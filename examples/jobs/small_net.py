"""A job for `oomph predict`: a small convolutional classifier in plain PyTorch."""

import torch
from torch import nn

import oomph


def net() -> nn.Module:
    layers = []
    for ins, outs in ((3, 64), (64, 128), (128, 256), (256, 512)):
        layers += [nn.Conv2d(ins, outs, 3, padding=1), nn.BatchNorm2d(outs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def job() -> oomph.Job:
    return oomph.Job(
        model=net,
        batch=lambda n, size: (torch.randn(n, 3, size, size), torch.randint(0, 10, (n,))),
        loss=nn.functional.cross_entropy,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
    )
