"""Trains on a machine with 16 GiB RAM."""

from torch.utils.data import DataLoader
from torchvision import transforms

from mydata import Photos

SIZE = 768
BATCH = 64

transform = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.ToTensor()])


def loaders(root):
    dataset = Photos(root, transform)
    many = DataLoader(dataset, BATCH, shuffle=True, num_workers=16, prefetch_factor=4)  # expect: prefetch-over-budget
    few = DataLoader(dataset, BATCH, shuffle=True, num_workers=8)
    unknown = DataLoader(dataset, BATCH, shuffle=True, num_workers=root.workers, prefetch_factor=10)
    return many, few, unknown
