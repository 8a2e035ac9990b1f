import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from mydata import Pets


def wrong(root):
    train_set = Pets(root, split="train")
    val_set = Pets(root, split="val")
    train_loader = DataLoader(train_set, batch_size=32, num_workers=2)  # expect: train-without-shuffle
    val_loader = DataLoader(val_set, batch_size=32)
    return train_loader, val_loader


def wrong_by_key(sets):
    return {
        "train": DataLoader(sets["a"], batch_size=8),  # expect: train-without-shuffle
        "val": DataLoader(sets["b"], batch_size=8),
    }


def wrong_split(root):
    return DataLoader(Pets(root, train=True), 16)  # expect: train-without-shuffle


def wrong_false(model, criterion, optimizer, training_data):
    loader = DataLoader(training_data, batch_size=8, shuffle=False)  # expect: train-without-shuffle
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()


class Module:
    def train_dataloader(self):
        return DataLoader(self.pets, batch_size=4)  # expect: train-without-shuffle


# Right.


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(3)


class RandomCrops(Dataset):
    def __init__(self, picture):
        self.picture = picture

    def __len__(self):
        return 1000

    def __getitem__(self, _):
        x, y = torch.randint(0, 900, (2,)).tolist()
        return self.picture[:, y : y + 64, x : x + 64]


def right(root, weights, picture, options):
    train_set = Pets(root, split="train")
    sampler = WeightedRandomSampler(weights, 100)
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    train_balanced = DataLoader(train_set, batch_size=32, sampler=sampler)
    train_stream = DataLoader(Stream(), batch_size=32)
    train_crops = DataLoader(RandomCrops(picture), batch_size=32)
    train_unknown = DataLoader(train_set, **options)
    train_noise = DataLoader(TensorDataset(torch.randn(100, 3)), batch_size=10)
    train_positional = DataLoader(train_set, 32, True)
    return train_loader, train_balanced, train_stream, train_crops, train_unknown, train_noise, train_positional


def mean(root):
    train_set = Pets(root, split="train")
    loader = DataLoader(train_set, batch_size=64)
    total = 0
    for images, _ in loader:
        total += images.sum()
    return total


def evaluation(root):
    train_eval_loader = DataLoader(Pets(root, split="train"), batch_size=64)
    test_loader = DataLoader(Pets(root, split="test"), batch_size=64, shuffle=False)
    return train_eval_loader, test_loader
