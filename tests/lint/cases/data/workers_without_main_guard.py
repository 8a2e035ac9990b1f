import torch
from torch.utils.data import DataLoader

from mydata import Tiles

WORKERS = 4
loader = DataLoader(Tiles("train"), batch_size=8, shuffle=True, num_workers=WORKERS)  # expect: workers-without-main-guard
test_loader = DataLoader(Tiles("test"), num_workers=2)
plain = DataLoader(Tiles("test"), batch_size=8)
forked = DataLoader(Tiles("other"), num_workers=2, multiprocessing_context="fork")


def make(root):
    return DataLoader(Tiles(root), batch_size=4, num_workers=2)


def evaluate():
    for images in make("val"):
        print(images.shape)


for images, labels in loader:
    print(images.mean(), labels)

for images in plain:
    print(images.mean())

for images in forked:
    print(images.mean())

if __name__ == "__main__":
    torch.manual_seed(0)
    for images in test_loader:
        print(images.shape)
    evaluate()
