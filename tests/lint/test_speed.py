from __future__ import annotations

import time
from pathlib import Path

import pytest

from oomph.lint import lint_paths

pytestmark = pytest.mark.medium

LINES = 100_000
SECONDS = 40  # 20 of CPU time: every line here is part of a training loop; real code takes 5
MODULE = '''
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


class Images{number}(Dataset):
    """Images in a folder."""

    def __init__(self, paths, transform=None):
        self.paths = list(paths)
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = read(self.paths[index])
        if self.transform is not None:
            image = self.transform(image)
        return image, index % 10


class Net{number}(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3 if i == 0 else width, width, 3) for i in range(4)])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x.mean((2, 3)))


def train{number}(model, loader, optimizer, scaler, scheduler, device, accumulate=4):
    model.train()
    total, history = 0.0, []
    optimizer.zero_grad(set_to_none=True)
    for i, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(images), labels) / accumulate
        scaler.scale(loss).backward()
        if (i + 1) % accumulate == 0 or i + 1 == len(loader):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        total += loss.item()
        history.append(loss.detach())
    return total / len(loader), history


@torch.no_grad()
def validate{number}(model, loader, device):
    model.eval()
    correct, count = 0, 0
    for images, labels in loader:
        output = model(images.to(device)).argmax(1).cpu()
        correct += (output == labels).sum().item()
        count += len(labels)
    return correct / max(count, 1)


def main{number}():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Net{number}().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    loader = DataLoader(Images{number}(range(100)), args.batch_size, shuffle=True, num_workers=4, pin_memory=True)
    for epoch in range(args.epochs):
        loss, _ = train{number}(model, loader, optimizer, scaler, scheduler, device)
        print(f"epoch {{epoch}}: {{loss:.3f}}, {{validate{number}(model, loader, device):.3f}}")
'''


@pytest.mark.large
def test_hundred_thousand_lines_of_training_code(tmp_path: Path) -> None:
    lines = 0
    number = 0
    while lines < LINES:
        text = "".join(MODULE.format(number=number * 10 + part) for part in range(5))
        (tmp_path / f"train{number}.py").write_text(text)
        lines += text.count("\n")
        number += 1
    start = time.process_time()
    result = lint_paths([tmp_path])
    seconds = time.process_time() - start
    assert result.lines >= LINES
    assert seconds < SECONDS
