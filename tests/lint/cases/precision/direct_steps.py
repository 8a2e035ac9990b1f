import torch
import torch.nn.functional as F


def wrong_after_unscaling(net, optimizer, loader, scaler):
    for image, label in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(net(image), label)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        optimizer.step()  # expect: scaler-bypassed
        scaler.update()


def right_own_check(net, optimizer, loader, scaler):
    for image, label in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(net(image), label)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if all(torch.isfinite(weight.grad).all() for weight in net.parameters()):
            optimizer.step()
        scaler.update()


def wrong_compiled(build):
    net = torch.compile(build().half().cuda())
    return torch.optim.AdamW(net.parameters(), lr=1e-4)  # expect: fp16-adam-eps
