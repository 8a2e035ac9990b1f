import torch


def plain(net, crit, loader):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        crit(net(x), y).backward()
        opt.step()  # expect: grad-never-zeroed


def once_per_epoch(net, crit, loader, opt, epochs):
    for _ in range(epochs):
        opt.zero_grad()
        for x, y in loader:
            loss = crit(net(x), y)
            loss.backward()
            opt.step()  # expect: grad-never-zeroed


def accumulated(net, crit, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()  # expect: grad-never-zeroed


def scaled(net, crit, loader, opt, scaler):
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)  # expect: grad-never-zeroed
        scaler.update()


def second_optimizer(net_d, net_g, loss_d, loss_g, loader, opt_d, opt_g):
    for real in loader:
        opt_d.zero_grad()
        loss_d(net_d(real), net_d(net_g(real).detach())).backward()
        opt_d.step()
        loss_g(net_d(net_g(real))).backward()
        opt_g.step()  # expect: grad-never-zeroed


def update_weights(net, crit, opt, x, y):
    loss = crit(net(x), y)
    loss.backward()
    opt.step()  # expect: grad-never-zeroed
    return loss.item()


def run(net, crit, opt, loader):
    for x, y in loader:
        update_weights(net, crit, opt, x, y)


class Trainer:
    def fit(self, loader):
        for x, y in loader:
            loss = self.crit(self.net(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimizer.step()  # expect: grad-never-zeroed


def without_parentheses(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad
        crit(net(x), y).backward()
        opt.step()  # expect: grad-never-zeroed


# Right.


def zeroed(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad(set_to_none=True)
        crit(net(x), y).backward()
        opt.step()


def by_model(net, crit, loader, opt):
    for x, y in loader:
        crit(net(x), y).backward()
        opt.step()
        net.zero_grad()


def by_hand(net, crit, loader, opt):
    for x, y in loader:
        for p in net.parameters():
            p.grad = None
        crit(net(x), y).backward()
        opt.step()


def closure(net, crit, loader, opt):
    for x, y in loader:

        def evaluate():
            opt.zero_grad()
            loss = crit(net(x), y)
            loss.backward()
            return loss

        opt.step(evaluate)


def helper(net, crit, loader, opt, prepare):
    for x, y in loader:
        prepare(opt)
        crit(net(x), y).backward()
        opt.step()


def one_step(net, crit, opt, x, y):
    crit(net(x), y).backward()
    opt.step()


def caller(net, crit, opt, loader):
    for x, y in loader:
        opt.zero_grad()
        one_step(net, crit, opt, x, y)


def several(nets, crit, loader, optimizers):
    for x, y in loader:
        for opt in optimizers:
            opt.zero_grad()
        crit(nets, x, y).backward()
        for opt in optimizers:
            opt.step()


def models_zeroed(net_d, net_g, loss_d, loss_g, loader, opt_d, opt_g):
    for real in loader:
        net_d.zero_grad()
        loss_d(net_d(real)).backward()
        opt_d.step()
        net_g.zero_grad()
        loss_g(net_d(net_g(real))).backward()
        opt_g.step()
