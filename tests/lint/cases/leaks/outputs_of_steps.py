from collections import deque

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from transformers import Trainer


class WrongModule(pl.LightningModule):
    def __init__(self, core):
        super().__init__()
        self.core = core
        self.outs, self.pairs, self.probs = [], [], []

    def forward(self, x):
        return self.core(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.outs.append(logits)  # expect: outputs-keep-graph
        self.pairs.append({"y": y, "logits": logits})  # expect: outputs-keep-graph
        self.probs.append(torch.softmax(logits, 1).cpu())  # expect: outputs-keep-graph
        return F.cross_entropy(logits, y)

    def on_train_epoch_end(self):
        self.log("mean", torch.cat(self.outs).mean())
        self.outs.clear()

    def validation_step(self, batch, batch_idx):
        self.outs.append(self(batch[0]))


class WrongManual(pl.LightningModule):
    def __init__(self, core):
        super().__init__()
        self.core, self.rows, self.sizes = core, [], []
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        x, y = batch
        opt = self.optimizers()
        size = self.core.measure(x)
        y_hat = self.core(x)
        loss = F.mse_loss(y_hat.squeeze(1), y)
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()
        self.sizes.append(size)
        self.rows.append((y, y_hat))  # expect: outputs-keep-graph


class WrongTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        outputs = model(**inputs)
        self.logits.append(outputs.logits)  # expect: outputs-keep-graph
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class WrongOwnStep:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer
        self.outs = []

    def train_batch(self, x, y):
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.outs.append(logits)  # expect: outputs-keep-graph


class RightModule(pl.LightningModule):
    def __init__(self, core, teacher):
        super().__init__()
        self.core, self.teacher = core, teacher
        self.outs, self.counts, self.targets = [], [], []
        self.last = deque(maxlen=8)
        self.seen, self.hits = [], 0

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.core(x)
        with torch.no_grad():
            target = self.teacher(x)
        self.outs.append(logits.detach())
        self.counts.append(logits.argmax(1))
        self.targets.append({"y": y, "target": target})
        self.last.append(logits)
        self.hits += (logits.argmax(1) == y).sum()
        self.seen.append(logits)
        if batch_idx % 50 == 0:
            self.log("mean", torch.cat(self.seen).mean())
            self.seen = []
        return F.cross_entropy(logits, y)


class RightOwnStep:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer
        self.outs = []

    def train_batch(self, x, y):
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.outs.append(logits)

    def flush(self):
        self.outs.clear()
