import lightning as L
import torch
from torch.nn import functional as F
from transformers import Trainer


class WrongModule(L.LightningModule):
    def __init__(self, net, parts):
        super().__init__()
        self.net, self.parts, self.seen = net, parts, []

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.seen.append(loss)  # expect: loss-keeps-graph
        return loss * 0.5


class WrongTrainer(Trainer):
    seen = []

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits, inputs["labels"])
        self.seen.append(loss)  # expect: loss-keeps-graph
        return (loss, outputs) if return_outputs else loss


class RightTrainer(Trainer):
    seen = []

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits, inputs["labels"])
        self.seen.append(loss.detach())
        return (loss, outputs) if return_outputs else loss


def right_statistics(model, optimizer, loader, epochs):
    stats = torch.zeros(epochs, len(loader))
    for epoch in range(epochs):
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                stats[epoch, step] = loss
    return stats.mean()


def wrong_mean_of_many(model, optimizer, loader):
    mean = 0.0
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        mean += loss  # expect: loss-keeps-graph
        if step % 100 == 99:
            print(step, float(mean) / 100)
            mean = 0.0


def right_sum_of_step(model, optimizer, loader, parts):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        total = total + F.cross_entropy(model(x), y) / parts
        if step % parts == parts - 1:
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            total = 0.0
