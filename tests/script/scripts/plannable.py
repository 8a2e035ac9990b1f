"""A plain loop that doesn't fit; with flags, the same loop after its plan was carried out by hand."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--no-loader", action="store_true")
parser.add_argument("--closure", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--plan")
options = parser.parse_args()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), *(Block(16) for _ in range(3)), nn.AdaptiveAvgPool2d(1), nn.Flatten()
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
if options.plan:
    import oomph

    oomph.Plan.load(options.plan).apply(model, optimizer)
loader = DataLoader(TensorDataset(torch.randn(96, 3, 96, 96), torch.randint(0, 16, (96,))), options.batch_size)


def batches():
    while True:
        if options.no_loader:
            yield torch.randn(options.batch_size, 3, 96, 96), torch.randint(0, 16, (options.batch_size,))
        else:
            yield from loader


def compute_loss():
    if index % options.accumulate == 0:
        optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda()) / options.accumulate
    loss.backward()
    return loss


for index, (images, labels) in zip(range(100), batches(), strict=False):
    if options.closure:
        optimizer.step(compute_loss)
        continue
    compute_loss()
    if (index + 1) % options.accumulate == 0:
        optimizer.step()
        scheduler.step()
