from collections import defaultdict

import lightning
import torch.nn.functional as F


def wrong_parts_of_loss(network, loader, optimizer):
    sums = defaultdict(float)
    for images, targets in loader:
        terms = network(images, targets)
        total = sum(terms.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        for name, term in terms.items():
            sums[name] += term  # expect: loss-keeps-graph
    return sums


def right_parts_of_loss(network, loader, optimizer):
    sums = defaultdict(float)
    for images, targets in loader:
        terms = network(images, targets)
        total = sum(terms.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        for name, term in terms.items():
            sums[name] += term.item()
    return sums


def wrong_moving_mean(network, loader, optimizer):
    mean = None
    for image, label in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(image), label)
        loss.backward()
        optimizer.step()
        mean = loss if mean is None else 0.95 * mean + 0.05 * loss  # expect: loss-keeps-graph
    return mean


class WrongModule(lightning.LightningModule):
    def __init__(self, network):
        super().__init__()
        self.network = network
        self.history = []

    def training_step(self, batch, index):
        image, label = batch
        loss = F.cross_entropy(self.network(image), label)
        self.history.append(loss)  # expect: loss-keeps-graph
        return loss


class RightModule(lightning.LightningModule):
    def __init__(self, network):
        super().__init__()
        self.network = network
        self.history = []

    def training_step(self, batch, index):
        image, label = batch
        loss = F.cross_entropy(self.network(image), label)
        self.history.append(loss.detach())
        return loss


def wrong_embeddings_by_id(encoder, loader, optimizer):
    table = {}
    for names, image, label in loader:
        optimizer.zero_grad()
        vectors = encoder(image)
        F.cross_entropy(vectors, label).backward()
        optimizer.step()
        for position, name in enumerate(names):
            table[name] = vectors[position]  # expect: outputs-keep-graph
    return table


def wrong_embeddings_by_update(encoder, loader, optimizer):
    table = {}
    for names, image, label in loader:
        optimizer.zero_grad()
        vectors = encoder(image)
        F.cross_entropy(vectors, label).backward()
        optimizer.step()
        table.update({name: vector for name, vector in zip(names, vectors)})  # expect: outputs-keep-graph
    return table


def right_embeddings_by_update(encoder, loader, optimizer):
    table = {}
    for names, image, label in loader:
        optimizer.zero_grad()
        vectors = encoder(image)
        F.cross_entropy(vectors, label).backward()
        optimizer.step()
        table.update({name: vector for name, vector in zip(names, vectors.detach())})
    return table


def learn(network, image, label, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(network(image), label)
    loss.backward()
    optimizer.step()
    return loss


def wrong_comprehension(network, loader, optimizer):
    losses = [learn(network, image, label, optimizer) for image, label in loader]  # expect: loss-keeps-graph
    return losses


def right_comprehension(network, loader, optimizer):
    losses = [learn(network, image, label, optimizer).item() for image, label in loader]
    return losses


class Diary:
    def __init__(self):
        self.lines = []

    def note(self, number, value):
        self.lines.append((number, value))


def wrong_diary(network, loader, optimizer):
    diary = Diary()
    for number, (image, label) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(image), label)
        loss.backward()
        optimizer.step()
        diary.note(number, loss)  # expect: loss-keeps-graph
    return diary


def right_diary(network, loader, optimizer):
    diary = Diary()
    for number, (image, label) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(image), label)
        loss.backward()
        optimizer.step()
        diary.note(number, loss.item())
    return diary


def right_gathered(network, loader, optimizer, accelerator):
    total = 0.0
    for batch in loader:
        loss = network(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        total += accelerator.gather(loss.detach()).mean()
    return total
