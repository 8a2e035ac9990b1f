import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

net = nn.Sequential(nn.Linear(10, 10), nn.Dropout(0.3), nn.Linear(10, 2))


@torch.no_grad()
def wrong_share_of_hits(network, loader):
    hits = 0
    for image, label in loader:  # expect: validation-without-eval
        hits += (network(image).argmax(1) == label).sum().item()
    return hits


@torch.no_grad()
def right_share_of_hits(network, loader):
    network.eval()
    hits = 0
    for image, label in loader:
        hits += (network(image).argmax(1) == label).sum().item()
    return hits


@torch.no_grad()
def wrong_mode_given_back(network, loader, loss_fn):
    former = network.training
    total = 0.0
    for image, label in loader:  # expect: validation-without-eval
        total += loss_fn(network(image), label).item() * image.argmax(1).eq(label).sum().item()
    network.train(former)
    return total


def wrong_end_of_training(network, train_loader, val_loader, optimizer):
    for image, label in train_loader:
        optimizer.zero_grad()
        functional.cross_entropy(network(image), label).backward()
        optimizer.step()
    network.eval()
    hits = 0
    for image, label in val_loader:  # expect: validation-with-grad
        hits += (network(image).argmax(1) == label).sum().item()
    return hits


def right_hits_while_training(network, loader, optimizer):
    network.train()
    hits = 0
    for image, label in loader:
        optimizer.zero_grad()
        out = network(image)
        functional.cross_entropy(out, label).backward()
        optimizer.step()
        hits += (out.argmax(1) == label).sum().item()
    return hits


class WrongJudge:
    def __init__(self, network):
        self.network = network
        network.eval()

    def __call__(self, batches: DataLoader):
        total = 0.0
        for image, label in batches:  # expect: validation-with-grad
            total += functional.l1_loss(self.network(image), label).item()
        return total


class RightJudge:
    def __init__(self, network):
        self.network = network
        network.eval()

    @torch.inference_mode()
    def __call__(self, batches: DataLoader):
        return sum(functional.l1_loss(self.network(image), label).item() for image, label in batches)


def wrong_evaluation_in_fit(network, tl, vl, optimizer):
    for _ in range(3):
        network.train()
        for image, label in tl:
            optimizer.zero_grad()
            functional.cross_entropy(network(image), label).backward()
            optimizer.step()
        with torch.no_grad():
            total = 0.0
            for image, label in vl:  # expect: validation-without-eval
                total += functional.cross_entropy(network(image), label).item()
        print(total)
