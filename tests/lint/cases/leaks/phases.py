import torch
import torch.nn.functional as F


def wrong_phases(network, loaders, optimizer):
    for phase in ("train", "valid"):
        if phase == "train":
            network.train()
        else:
            network.eval()
        for image, label in loaders[phase]:  # expect: validation-with-grad
            loss = F.cross_entropy(network(image), label)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def wrong_flag(network, batches, optimizer=None):
    learns = optimizer is not None
    network.train(learns)
    for image, label in batches:  # expect: validation-with-grad
        loss = F.cross_entropy(network(image), label)
        if learns:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def right_flag(network, batches, optimizer=None):
    learns = optimizer is not None
    network.train(learns)
    for image, label in batches:
        with torch.set_grad_enabled(learns):
            loss = F.cross_entropy(network(image), label)
        if learns:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def right_called_without_gradients(network, batches, learns, optimizer):
    network.train(learns)
    for image, label in batches:
        loss = F.cross_entropy(network(image), label)
        if learns:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def run(network, batches, optimizer):
    with torch.no_grad():
        right_called_without_gradients(network, batches, False, optimizer)
