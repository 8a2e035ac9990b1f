"""A Job and a metric for `oomph.sweep`: a classifier that tells the direction of noisy stripes."""

import torch
from torch import Tensor, nn

import oomph


def net() -> nn.Module:
    layers: list[nn.Module] = []
    for ins, outs in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(ins, outs, 3, padding=1), nn.BatchNorm2d(outs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2))


def stripes(n: int, size: int) -> tuple[Tensor, Tensor]:
    """Return noisy photos of 96 pixels with fine stripes, resized, and the directions of the stripes."""
    lines = (torch.arange(96) % 4 > 1).float().expand(n, 1, 96, 96)
    labels = torch.randint(0, 2, (n,))
    photos = torch.where(labels.view(n, 1, 1, 1) == 1, lines, lines.transpose(2, 3)) + torch.randn(n, 1, 96, 96)
    return nn.functional.interpolate(photos, size, mode="area"), labels


def job() -> oomph.Job:
    return oomph.Job(
        model=net,
        batch=stripes,
        loss=nn.functional.cross_entropy,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True),
    )


def accuracy(model: nn.Module, size: int) -> float:
    images, labels = stripes(200, size)
    device = next(model.parameters()).device
    return float((model(images.to(device)).argmax(1).cpu() == labels).float().mean())


if __name__ == "__main__":
    result = oomph.sweep(
        f"{__file__}:job", metric=f"{__file__}:accuracy", batch=(8, 32), size=(24, 48), steps=30, seeds=2
    )
    for summary in result.summaries:
        print(dict(summary.values), summary.metrics["accuracy"], f"{(summary.memory or 0) >> 20} MiB")
    print(*result.recommendation, sep="\n")
