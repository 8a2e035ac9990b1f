import torch
from torch.amp import GradScaler, autocast

dtype = torch.bfloat16
scaler = GradScaler("cuda")  # expect: scaler-with-bf16
for x, y in loader:
    opt.zero_grad()
    with autocast("cuda", dtype=dtype):
        loss = crit(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()


class Trainer:
    def __init__(self, net, opt):
        self.net, self.opt = net, opt
        self.grad_scaler = torch.amp.GradScaler("cuda", enabled=True)  # expect: scaler-with-bf16

    def step(self, x, y):
        self.opt.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.crit(self.net(x), y)
        self.grad_scaler.scale(loss).backward()
        self.grad_scaler.step(self.opt)
        self.grad_scaler.update()


def through_context(net, crit, loader, opt):
    ctx = torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)
    s = torch.amp.GradScaler()  # expect: scaler-with-bf16
    for x, y in loader:
        opt.zero_grad()
        with ctx:
            loss = crit(net(x), y)
        s.scale(loss).backward()
        s.step(opt)
        s.update()


# Right.


def half(net, crit, loader, opt):
    s = torch.amp.GradScaler("cuda")
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = crit(net(x), y)
        s.scale(loss).backward()
        s.step(opt)
        s.update()


def chosen(net, crit, loader, opt, kind):
    kind = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    s = torch.amp.GradScaler("cuda", enabled=kind is torch.float16)
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=kind):
            loss = crit(net(x), y)
        s.scale(loss).backward()
        s.step(opt)
        s.update()


def without_scaler(net, crit, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = crit(net(x), y)
        loss.backward()
        opt.step()
