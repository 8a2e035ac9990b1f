import lightning as L
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import Trainer, TrainingArguments

import oomph


def accumulate(model, optimizer, loader, loss_fn, steps):
    accelerator = Accelerator(gradient_accumulation_steps=steps)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = loss_fn(model(x), y)
            loss = loss / steps  # expect: loss-divided-twice
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()


def inline(accelerator, model, optimizer, loader, loss_fn, cfg):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = loss_fn(model(x), y)
            accelerator.backward(loss / cfg.gradient_accumulation_steps)  # expect: loss-divided-twice
            optimizer.step()
            optimizer.zero_grad()


class Lit(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        loss = loss / self.trainer.accumulate_grad_batches  # expect: loss-divided-twice
        return {"loss": loss}


class LitConstant(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y) / 8  # expect: loss-divided-twice


trainer = L.Trainer(accumulate_grad_batches=8)
args = TrainingArguments("out", gradient_accumulation_steps=16)


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        out = model(**inputs)
        loss = out.loss / self.args.gradient_accumulation_steps  # expect: loss-divided-twice
        return (loss, out) if return_outputs else loss


def by_hand(net, crit, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        loss = crit(net(x), y) / k
        (loss / k).backward()  # expect: loss-divided-twice
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def mean_of_group(outputs, targets):
    return F.cross_entropy(outputs, targets) / accum_steps  # expect: loss-divided-twice


accum_steps = 4
guard = oomph.guard(model=model, optimizer=optimizer, loss=mean_of_group)
for step, batch in enumerate(loader):
    guard.step(batch, update=(step + 1) % accum_steps == 0)


# Right.


def undivided(model, optimizer, loader, loss_fn):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = loss_fn(model(x), y) / x.shape[1]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item() / 4)


class Halved(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        first, second = self(x)
        return (F.cross_entropy(first, y) + F.cross_entropy(second, y)) / 2


class Manual(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        loss = F.cross_entropy(self(batch[0]), batch[1]) / 8
        self.manual_backward(loss)
        if (batch_idx + 1) % 8 == 0:
            opt.step()
            opt.zero_grad()


def own_backward(accelerator, model, optimizer, loader, loss_fn, plain):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = loss_fn(model(x), y)
            if plain:
                loss /= accelerator.gradient_accumulation_steps
                loss.backward()
            else:
                accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
