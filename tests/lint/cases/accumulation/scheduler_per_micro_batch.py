def outside_branch(net, crit, loader, opt, scheduler, k):
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()
        scheduler.step()  # expect: scheduler-per-micro-batch


def before_continue(net, crit, loader, opt, lr_scheduler, k):
    n = len(loader)
    for i, (x, y) in enumerate(loader, 1):
        (crit(net(x), y) / k).backward()
        lr_scheduler.step()  # expect: scheduler-per-micro-batch
        if i % k and i != n:
            continue
        opt.step()
        opt.zero_grad()


def micro_loop(net, crit, loader, opt, warmup_scheduler):
    for x, y in loader:
        opt.zero_grad()
        for xb, yb in zip(x.chunk(2), y.chunk(2)):
            (crit(net(xb), yb) / 2).backward()
            warmup_scheduler.step()  # expect: scheduler-per-micro-batch
        opt.step()


# Right.


def inside(net, crit, loader, opt, scheduler, k):
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            scheduler.step()
            opt.zero_grad()


def per_epoch(net, crit, loader, opt, scheduler, k):
    for _ in range(5):
        for i, (x, y) in enumerate(loader):
            (crit(net(x), y) / k).backward()
            if (i + 1) % k == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()
        scheduler.step()


def fraction(net, crit, loader, opt, scheduler, k, epoch):
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()
        scheduler.step(epoch + i / len(loader))


def accelerated(accelerator, net, crit, loader, optimizer, scheduler):
    for x, y in loader:
        with accelerator.accumulate(net):
            accelerator.backward(crit(net(x), y))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


def every_step(net, crit, loader, opt, scheduler):
    for x, y in loader:
        opt.zero_grad()
        crit(net(x), y).backward()
        opt.step()
        scheduler.step()
