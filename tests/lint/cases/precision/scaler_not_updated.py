import torch


def missing(net, crit, loader, opt):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)  # expect: scaler-not-updated


class Trainer:
    def __init__(self, net, opt):
        self.net, self.opt = net, opt
        self.sc = torch.amp.GradScaler("cuda")

    def step(self, x, y):
        self.opt.zero_grad()
        with torch.autocast("cuda"):
            loss = self.crit(self.net(x), y)
        self.sc.scale(loss).backward()
        self.sc.unscale_(self.opt)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.sc.step(self.opt)  # expect: scaler-not-updated


def two(net_d, net_g, loss_d, loss_g, loader, opt_d, opt_g, scaler):
    for real in loader:
        opt_d.zero_grad()
        scaler.scale(loss_d(net_d, net_g, real)).backward()
        scaler.step(opt_d)
        opt_g.zero_grad()
        scaler.scale(loss_g(net_d, net_g)).backward()
        scaler.step(opt_g)  # expect: scaler-not-updated


# Right.


def updated(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()


def unknown_name(net, crit, loader, opt, gs):
    for x, y in loader:
        opt.zero_grad()
        gs.scale(crit(net(x), y)).backward()
        gs.step(opt)
        gs.update()


def by_helper(net, crit, loader, opt, scaler, finish):
    for x, y in loader:
        opt.zero_grad()
        scaler.scale(crit(net(x), y)).backward()
        scaler.step(opt)
        finish(scaler)


class Split:
    def apply(self, x, y):
        self.opt.zero_grad()
        self.scaler.scale(self.crit(self.net(x), y)).backward()
        self.scaler.step(self.opt)

    def finish(self):
        self.scaler.update()
