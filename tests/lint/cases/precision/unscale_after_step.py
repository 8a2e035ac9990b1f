import torch
from torch.nn.utils import clip_grad_norm_


def late(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.unscale_(opt)  # expect: unscale-after-step
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.update()


def after_update(net, crit, loader, optimizer, gs):
    for x, y in loader:
        optimizer.zero_grad()
        gs.scale(crit(net(x), y)).backward()
        gs.step(optimizer)
        gs.update()
        gs.unscale_(optimizer)  # expect: unscale-after-step


# Right.


def between(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        scaler.scale(crit(net(x), y)).backward()
        scaler.unscale_(opt)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()


def two(net_d, net_g, loss_d, loss_g, loader, opt_d, opt_g, scaler):
    for real in loader:
        opt_d.zero_grad()
        scaler.scale(loss_d(net_d, net_g, real)).backward()
        scaler.unscale_(opt_d)
        scaler.step(opt_d)
        opt_g.zero_grad()
        scaler.scale(loss_g(net_d, net_g)).backward()
        scaler.unscale_(opt_g)
        scaler.step(opt_g)
        scaler.update()


def both_at_the_end(net, crit, loader, opt_a, opt_b, scaler):
    for x, y in loader:
        opt_a.zero_grad()
        opt_b.zero_grad()
        scaler.scale(crit(net(x), y)).backward()
        scaler.step(opt_a)
        scaler.unscale_(opt_b)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt_b)
        scaler.update()
