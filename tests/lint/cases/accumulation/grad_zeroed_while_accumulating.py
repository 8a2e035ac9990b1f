import torch


def every_iteration(model, criterion, loader, optimizer, accum_steps):
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()  # expect: grad-zeroed-while-accumulating
        loss = criterion(model(x), y) / accum_steps
        loss.backward()
        if (i + 1) % accum_steps == 0 or i + 1 == len(loader):
            optimizer.step()


def at_the_end(net, loss_fn, batches, opt, k=4):
    for j, (x, y) in enumerate(batches, 1):
        (loss_fn(net(x), y) / k).backward()
        if j % k == 0 or j == len(batches):
            opt.step()
        opt.zero_grad()  # expect: grad-zeroed-while-accumulating


def with_continue(net, loss_fn, batches, opt, k=4):
    n = len(batches)
    for j, (x, y) in enumerate(batches):
        net.zero_grad(set_to_none=True)  # expect: grad-zeroed-while-accumulating
        (loss_fn(net(x), y) / k).backward()
        if (j + 1) % k != 0 and j + 1 != n:
            continue
        opt.step()


def in_micro_loop(net, loss_fn, loader, opt, scaler):
    for x, y in loader:
        for xb, yb in zip(x.chunk(4), y.chunk(4)):
            opt.zero_grad()  # expect: grad-zeroed-while-accumulating
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_fn(net(xb), yb) * (len(xb) / len(x))
            scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()


def with_flag(self, loader):
    for it, batch in enumerate(loader):
        self.opt.zero_grad()  # expect: grad-zeroed-while-accumulating
        loss = self.criterion(self.model(batch[0]), batch[1]) / self.accum
        loss.backward()
        is_update = (it + 1) % self.accum == 0 or it == len(loader) - 1
        if is_update:
            self.opt.step()


class Distiller:
    def learn(self, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.crit(self.net(x), y)
        self.amp.scale(loss / self.accum).backward()

    def epoch(self, loader):
        n = 0
        for x, y in loader:
            self.optim.zero_grad()  # expect: grad-zeroed-while-accumulating
            self.learn(x, y)
            n += 1
            if n % self.accum == 0 or n == len(loader):
                self.amp.step(self.optim)
                self.amp.update()


# Right.


def after_step(model, criterion, loader, optimizer, accum_steps):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y) / accum_steps
        loss.backward()
        if (i + 1) % accum_steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def before_group(model, criterion, loader, optimizer, k):
    for i, (x, y) in enumerate(loader):
        if i % k == 0:
            optimizer.zero_grad()
        loss = criterion(model(x), y) / k
        loss.backward()
        if i % k == k - 1 or i == len(loader) - 1:
            optimizer.step()


def micro(get_batch, model, optimizer, micro_steps, max_iters):
    for _ in range(max_iters):
        for _ in range(micro_steps):
            x, y = get_batch()
            _, loss = model(x, y)
            (loss / micro_steps).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def gan(loader, netD, netG, optD, optG, loss_d, loss_g, n_critic):
    for i, real in enumerate(loader):
        optD.zero_grad()
        loss_d(netD, netG, real).backward()
        optD.step()
        if i % n_critic == 0:
            optG.zero_grad()
            loss_g(netD, netG).backward()
            optG.step()


def retry(net, loss_fn, x, y, opt):
    while True:
        opt.zero_grad()
        try:
            loss_fn(net(x), y).backward()
            break
        except torch.cuda.OutOfMemoryError:
            x, y = x[: len(x) // 2], y[: len(y) // 2]  # oomph: ignore
    opt.step()


def accelerate(accelerator, model, optimizer, loader, loss_fn):
    for x, y in loader:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            accelerator.backward(loss)
            optimizer.step()


def logged(net, loss_fn, loader, opt):
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        opt.step()
        if i % 100 == 0:
            print(loss.item())
