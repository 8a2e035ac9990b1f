from contextlib import nullcontext

import torch


def inside(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = crit(net(x), y)
            loss.backward()  # expect: backward-in-autocast
        opt.step()


def with_step(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        with torch.amp.autocast("cuda", dtype=torch.bfloat16), torch.enable_grad():
            loss = crit(net(x), y)
            loss.backward()  # expect: backward-in-autocast
            opt.step()


def only_step(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        loss = crit(net(x), y)
        loss.backward()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            opt.step()  # expect: backward-in-autocast


def named(net, crit, loader, opt, use_amp):
    ctx = torch.autocast("cuda", dtype=torch.bfloat16) if use_amp else nullcontext()
    for x, y in loader:
        opt.zero_grad()
        with ctx:
            crit(net(x), y).backward()  # expect: backward-in-autocast
        opt.step()


@torch.autocast("cuda", dtype=torch.bfloat16)
def decorated(net, crit, opt, x, y):
    opt.zero_grad()
    crit(net(x), y).backward()  # expect: backward-in-autocast
    opt.step()


def scaled(net, crit, loader, opt, scaler):
    with torch.autocast("cuda"):
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(crit(net(x), y)).backward()  # expect: backward-in-autocast
            scaler.step(opt)
            scaler.update()


# Right.


def outside(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = crit(net(x), y)
        loss.backward()
        opt.step()


def switched_off(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = net(x)
            with torch.autocast("cuda", enabled=False):
                crit(out.float(), y).backward()
        opt.step()


def other_context(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        with torch.profiler.record_function("step"):
            crit(net(x), y).backward()
            opt.step()
