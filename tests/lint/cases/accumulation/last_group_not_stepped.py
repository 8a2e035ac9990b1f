def enumerated(net, crit, loader, opt, accum):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / accum).backward()
        if (i + 1) % accum == 0:  # expect: last-group-not-stepped
            opt.step()
            opt.zero_grad()


def epochs(net, crit, loader, opt, tqdm):
    for epoch in range(3):
        opt.zero_grad()
        for step, (x, y) in enumerate(tqdm(loader, desc=f"{epoch}"), start=1):
            loss = crit(net(x), y) / 8
            loss.backward()
            if step % 8 == 0:  # expect: last-group-not-stepped
                opt.step()
                opt.zero_grad()


def counted(net, crit, loader, opt, scheduler, k=4):
    for _ in range(2):
        n = 0
        for x, y in loader:
            (crit(net(x), y) / k).backward()
            n += 1
            if n % k == 0:  # expect: last-group-not-stepped
                opt.step()
                opt.zero_grad()
        scheduler.step()


def negated(net, crit, loader, opt, k):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if not (i + 1) % k:  # expect: last-group-not-stepped
            opt.step()
            opt.zero_grad()


def skipped(net, crit, loader, opt, k):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k != 0:  # expect: last-group-not-stepped
            continue
        opt.step()
        opt.zero_grad()


def by_length(net, crit, data, opt, k):
    opt.zero_grad()
    for i in range(len(data)):
        x, y = data[i]
        (crit(net(x), y) / k).backward()
        if i % k == k - 1:  # expect: last-group-not-stepped
            opt.step()
            opt.zero_grad()


def restarted(net, crit, loader, opt):
    pending = 0
    for x, y in loader:
        (crit(net(x), y) / 4).backward()
        pending += 1
        if pending == 4:  # expect: last-group-not-stepped
            opt.step()
            opt.zero_grad()
            pending = 0


def restarted_with_continue(net, crit, loader, opt, k=4):
    n = 0
    for x, y in loader:
        (crit(net(x), y) / k).backward()
        n += 1
        if n < k:  # expect: last-group-not-stepped
            continue
        opt.step()
        opt.zero_grad()
        n = 0


def never_the_length(net, crit, loader, opt, k):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0 or i == len(loader):  # expect: last-group-not-stepped
            opt.step()
            opt.zero_grad()


# Right.


def the_length_from_one(net, crit, loader, opt, k):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader, 1):
        (crit(net(x), y) / k).backward()
        if i % k == 0 or i == len(loader):
            opt.step()
            opt.zero_grad()


def with_last(net, crit, loader, opt, k):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0 or (i + 1) == len(loader):
            opt.step()
            opt.zero_grad()


def behind(net, crit, loader, opt, k):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0:
            opt.step()
            opt.zero_grad()
    if (i + 1) % k != 0:
        opt.step()
        opt.zero_grad()


def global_counter(net, crit, loader, opt, k):
    opt.zero_grad()
    n = 0
    for _ in range(10):
        for x, y in loader:
            (crit(net(x), y) / k).backward()
            n += 1
            if n % k == 0:
                opt.step()
                opt.zero_grad()


def updated(net, crit, loader, opt, k):
    last = len(loader) - 1
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        need_update = i == last or (i + 1) % k == 0
        (crit(net(x), y) / k).backward()
        if not need_update:
            continue
        opt.step()
        opt.zero_grad()


def endless(net, crit, batches, opt, k, steps):
    for step in range(steps):
        x, y = next(batches)
        (crit(net(x), y) / k).backward()
        if (step + 1) % k == 0:
            opt.step()
            opt.zero_grad()


def dropped(net, crit, loader, opt, k):
    whole = len(loader) - len(loader) % k
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        if i >= whole:
            break
        (crit(net(x), y) / k).backward()
        if (i + 1) % k == 0:
            opt.step()
            opt.zero_grad()


def distance(net, crit, loader, opt, accumulate):
    last = -1
    for ni, (x, y) in enumerate(loader):
        crit(net(x), y).backward()
        if ni - last >= accumulate:
            opt.step()
            opt.zero_grad()
            last = ni


def restarted_over_epochs(net, crit, loader, opt):
    pending = 0
    for _ in range(10):
        for x, y in loader:
            (crit(net(x), y) / 4).backward()
            pending += 1
            if pending == 4:
                opt.step()
                opt.zero_grad()
                pending = 0
