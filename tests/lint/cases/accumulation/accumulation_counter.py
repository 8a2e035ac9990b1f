def undefined(net, crit, loader, opt, k):
    opt.zero_grad()
    for x, y in loader:
        (crit(net(x), y) / k).backward()
        if (n_batches + 1) % k == 0:  # expect: accumulation-counter
            opt.step()
            opt.zero_grad()


def never_increased(net, crit, loader, opt, k):
    n = 0
    for x, y in loader:
        (crit(net(x), y) / k).backward()
        if n % k == 0:  # expect: accumulation-counter
            opt.step()
            opt.zero_grad()


def increased_inside(net, crit, loader, opt, k):
    n = 1
    for x, y in loader:
        (crit(net(x), y) / k).backward()
        if n % k == 0:  # expect: accumulation-counter
            opt.step()
            opt.zero_grad()
            n += 1


def epoch_instead(net, crit, loader, opt, k):
    for epoch in range(9):
        for x, y in loader:
            (crit(net(x), y) / k).backward()
            if (epoch + 1) % k == 0:  # expect: accumulation-counter
                opt.step()
                opt.zero_grad()


def from_zero(net, crit, loader, opt, accum):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / accum).backward()
        if i % accum == 0:  # expect: accumulation-counter, last-group-not-stepped
            opt.step()
            opt.zero_grad()


def negated(net, crit, loader, opt):
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / 4).backward()
        if not i % 4:  # expect: accumulation-counter, last-group-not-stepped
            opt.step()
            opt.zero_grad()


def first_too(net, crit, loader, opt, k):
    for step, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if step % k == 0 or step == len(loader) - 1:  # expect: accumulation-counter
            opt.step()
            opt.zero_grad()


def increased_behind(net, crit, loader, opt, k):
    step = 0
    for x, y in loader:
        loss = crit(net(x), y) / k
        loss.backward()
        if step % k == 0:  # expect: accumulation-counter, last-group-not-stepped
            opt.step()
            opt.zero_grad()
        step += 1


def from_one(net, crit, loader, opt, k):
    for i, (x, y) in enumerate(loader, 1):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0:  # expect: accumulation-counter, last-group-not-stepped
            opt.step()
            opt.zero_grad()


class Trainer:
    def __init__(self):
        self.calls = 0

    def fit(self, loader, opt):
        for x, y in loader:
            (self.crit(self.net(x), y) / 4).backward()
            if self.calls % 4 == 0:  # expect: accumulation-counter
                opt.step()
                opt.zero_grad()


# Right.


def right(net, crit, loader, opt):
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / 4).backward()
        if i % 4 == 3 or i == len(loader) - 1:
            opt.step()
            opt.zero_grad()


def not_the_first(net, crit, loader, opt, k):
    for step, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if step > 0 and step % k == 0:  # oomph: ignore[last-group-not-stepped]
            opt.step()
            opt.zero_grad()


def step_first(net, crit, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        if i % k == 0:
            opt.step()
            opt.zero_grad()
        (crit(net(x), y) / k).backward()
    opt.step()


def counted(net, crit, loader, opt, k):
    n = 0
    for x, y in loader:
        n += 1
        (crit(net(x), y) / k).backward()
        if n % k == 0:
            opt.step()
            opt.zero_grad()
    if n % k:
        opt.step()


def given(net, crit, x, y, opt, step, k):
    (crit(net(x), y) / k).backward()
    if step % k == 0:
        opt.step()
        opt.zero_grad()


def gan(loader, net_d, net_g, opt_d, opt_g, loss_d, loss_g):
    for i, real in enumerate(loader):
        opt_d.zero_grad()
        loss_d(net_d, net_g, real).backward()
        opt_d.step()
        if i % 5 == 0:
            opt_g.zero_grad()
            loss_g(net_d, net_g).backward()
            opt_g.step()


class Module:
    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        loss = self.loss(batch) / 4
        self.manual_backward(loss)
        if (batch_idx + 1) % 4 == 0:
            opt.step()
            opt.zero_grad()


class Counting:
    def __init__(self):
        self.calls = 0

    def fit(self, loader, opt):
        for x, y in loader:
            self.calls += 1
            (self.crit(self.net(x), y) / 4).backward()
            if self.calls % 4 == 0:
                opt.step()
                opt.zero_grad()
