import torch
import torch.nn.functional as F
from torch import nn


def criterion_call(net, criterion, loader, opt):
    for i, (x, y) in enumerate(loader):
        criterion(net(x), y).backward()  # expect: loss-not-divided
        if (i + 1) % 4 == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def functional(net, loader, opt, accum):
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(net(x), y)
        loss.backward()  # expect: loss-not-divided
        if (i + 1) % accum == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def two_terms(net, loader, opt, accum):
    ce = nn.CrossEntropyLoss()
    for i, (x, y) in enumerate(loader):
        out = net(x)
        loss = ce(out, y)
        loss = loss + 0.1 * out.pow(2).mean()
        loss.backward()  # expect: loss-not-divided
        if (i + 1) % accum == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def scaled(net, crit, loader, opt, scaler, k):
    for i, (x, y) in enumerate(loader):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()  # expect: loss-not-divided
        if (i + 1) % k == 0 or i + 1 == len(loader):
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()


def transformers(model, loader, optimizer, steps):
    for i, batch in enumerate(loader):
        out = model(**batch)
        loss = out.loss
        loss.backward()  # expect: loss-not-divided
        if (i + 1) % steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def unpacked(model, loader, optimizer, steps):
    for i, (x, y) in enumerate(loader):
        logits, loss = model(x, y)
        loss.backward()  # expect: loss-not-divided
        if (i + 1) % steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def other_number(net, crit, loader, opt):
    for i, (x, y) in enumerate(loader):
        loss = (crit(net(x), y) + crit(net(x.flip(0)), y)) / 2
        loss.backward()  # expect: loss-not-divided
        if (i + 1) % 8 == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def chunks(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        for xb, yb in zip(x.chunk(4), y.chunk(4)):
            crit(net(xb), yb).backward()  # expect: loss-not-divided
        opt.step()


def micro_steps(model, get_batch, optimizer, grad_accum):
    while True:
        for _ in range(grad_accum):
            x, y = get_batch()
            logits, loss = model(x, y)
            loss.backward()  # expect: loss-not-divided
        optimizer.step()
        optimizer.zero_grad()


def counted(net, crit, loader, opt, accum_steps):
    count = 0
    for x, y in loader:
        loss = crit(net(x), y)
        loss.backward()  # expect: loss-not-divided
        count += 1
        if count == accum_steps:
            opt.step()
            opt.zero_grad()
            count = 0
    opt.step()


def unknown_function(enc, nt_xent, loader, opt, k=4):
    for i, (a, b) in enumerate(loader, 1):
        za, zb = enc(a), enc(b)
        loss = nt_xent(za, zb)
        loss.backward()  # expect: loss-not-divided
        if i % k == 0 or i == len(loader):
            opt.step()
            opt.zero_grad()


def mean_of_two(enc, loader, opt, k=8):
    for i, (a, b) in enumerate(loader, 1):
        logits = enc(a) @ enc(b).T
        labels = torch.arange(len(a))
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        loss.backward()  # expect: loss-not-divided
        if i % k == 0 or i == len(loader):
            opt.step()
            opt.zero_grad()


def fetched(model, batches, opt, loss_fn, k, steps):
    for _ in range(steps):
        opt.zero_grad()
        for _ in range(k):
            x, y = next(batches)
            loss_fn(model(x), y).backward()  # expect: loss-not-divided
        opt.step()


def apply(loss, i, n, k, opt):
    loss.backward()  # expect: loss-not-divided
    if (i + 1) % k == 0 or i + 1 == n:
        opt.step()
        opt.zero_grad()


def through_argument(net, criterion, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        loss = criterion(net(x), y)
        apply(loss, i, len(loader), k, opt)


# Right.


def divided(net, crit, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        loss = crit(net(x), y)
        loss = loss / k
        loss.backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def in_place(net, crit, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        loss = crit(net(x), y)
        loss /= k
        loss.backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def factor(net, crit, loader, opt):
    for i, (x, y) in enumerate(loader):
        (0.25 * crit(net(x), y)).backward()
        if (i + 1) % 4 == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def summed(net, loader, opt, k):
    crit = nn.CrossEntropyLoss(reduction="sum")
    for i, (x, y) in enumerate(loader):
        crit(net(x), y).backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def sum_of(net, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(net(x), y, reduction="sum")
        loss.backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def weighted(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        for xb, yb in zip(x.chunk(4), y.chunk(4)):
            loss = crit(net(xb), yb) * (len(xb) / len(x))
            loss.backward()
        opt.step()


def gradients_divided(net, crit, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        crit(net(x), y).backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            for p in net.parameters():
                p.grad /= k
            opt.step()
            opt.zero_grad()


def elsewhere(net, loss_of, loader, opt, k):
    for i, batch in enumerate(loader):
        loss = loss_of(net, batch, scale=1 / k)
        loss.backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def part(net, crit, x, y, k):
    return crit(net(x), y) / k


def by_function(net, crit, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        part(net, crit, x, y, k).backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def two_tasks(net, loader, opt, losses):
    for x, y in loader:
        opt.zero_grad()
        out = net(x)
        for loss_fn in losses:
            loss_fn(out, y).backward(retain_graph=True)  # oomph: ignore
        opt.step()


def lower_rate(net, crit, loader, k):
    opt = torch.optim.SGD(net.parameters(), lr=0.1 / k)
    for i, (x, y) in enumerate(loader):
        crit(net(x), y).backward()
        if (i + 1) % k == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def may_know(net, loader, opt, args):
    for i, batch in enumerate(loader):
        loss = net.training_loss(batch, args)
        loss.backward()
        if (i + 1) % args.accum == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()


def apply_divided(loss, i, n, k, opt):
    loss.backward()
    if (i + 1) % k == 0 or i + 1 == n:
        opt.step()
        opt.zero_grad()


def divided_argument(net, criterion, loader, opt, k):
    for i, (x, y) in enumerate(loader):
        loss = criterion(net(x), y) / k
        apply_divided(loss, i, len(loader), k, opt)
