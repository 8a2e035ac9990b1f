import torch


def direct_step(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        opt.step()  # expect: scaler-bypassed
        scaler.update()


def direct_backward(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        loss.backward()  # expect: scaler-bypassed
        scaler.step(opt)
        scaler.update()


def gan(net_d, net_g, loss_d, loss_g, loader, opt_d, opt_g):
    scaler = torch.amp.GradScaler("cuda")
    for real in loader:
        opt_d.zero_grad()
        with torch.autocast("cuda"):
            d = loss_d(net_d(real), net_d(net_g(real).detach()))
        scaler.scale(d).backward()
        scaler.step(opt_d)
        opt_g.zero_grad()
        with torch.autocast("cuda"):
            g = loss_g(net_d(net_g(real)))
        g.backward()  # expect: scaler-bypassed
        opt_g.step()
        scaler.update()


def never_used(net, crit, loader, opt):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = crit(net(x), y)
        loss.backward()  # expect: scaler-bypassed
        opt.step()


# Right.


def optional(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        loss = crit(net(x), y)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        else:
            loss.backward()
            opt.step()


def early(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        loss = crit(net(x), y)
        if not scaler:
            loss.backward()
            opt.step()
            continue
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()


def in_two_branches(net, crit, loader, opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        loss = crit(net(x), y)
        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if scaler is not None:
            scaler.step(opt)
            scaler.update()
        else:
            opt.step()


def float32_head(net, head, crit, loader, opt, head_opt, scaler):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            features = net(x)
            loss = crit(features, y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        head_opt.zero_grad()
        head_loss = crit(head(features.detach().float()), y)
        head_loss.backward()
        head_opt.step()
