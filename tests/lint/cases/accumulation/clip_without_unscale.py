import torch
from torch.nn.utils import clip_grad_norm_


def missing(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # expect: clip-without-unscale
        scaler.step(opt)
        scaler.update()


def imported(net, crit, loader, opt, loss_scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        loss_scaler.scale(loss).backward()
        norm = clip_grad_norm_(net.parameters(), 1.0)  # expect: clip-without-unscale
        loss_scaler.step(opt)
        loss_scaler.update()
        print(norm.item())


class Trainer:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt
        self.amp = torch.amp.GradScaler("cuda")

    def step(self, loss):
        self.opt.zero_grad()
        self.amp.scale(loss).backward()
        torch.nn.utils.clip_grad_value_(self.model.parameters(), 0.5)  # expect: clip-without-unscale
        self.amp.step(self.opt)
        self.amp.update()

    def accumulate(self, loader, k):
        for i, (x, y) in enumerate(loader):
            with torch.autocast("cuda"):
                loss = self.crit(self.model(x), y) / k
            self.amp.scale(loss).backward()
            if (i + 1) % k == 0 or i + 1 == len(loader):
                if self.max_norm:
                    clip_grad_norm_(self.model.parameters(), self.max_norm)  # expect: clip-without-unscale
                self.amp.step(self.opt)
                self.amp.update()
                self.opt.zero_grad()


def by_hand(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        for p in net.parameters():
            p.grad.data.clamp_(-1, 1)  # expect: clip-without-unscale
        scaler.step(opt)
        scaler.update()


# Right.


def unscaled(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()


def optional(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        loss = crit(net(x), y)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
        else:
            loss.backward()
            clip_grad_norm_(net.parameters(), 1.0)
            opt.step()


def only_plain_clips(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        loss = crit(net(x), y)
        if scaler is None:
            loss.backward()
            clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            continue
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()


def accelerated(accelerator, net, crit, loader, optimizer, scaler):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(crit(net(x), y))
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


def without_scaler(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        crit(net(x), y).backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
