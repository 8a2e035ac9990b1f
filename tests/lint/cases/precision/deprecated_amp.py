import torch
import torch as th
from torch.cuda import amp
from torch.cuda.amp import autocast, custom_bwd, custom_fwd
from torch.cuda.amp import GradScaler as Scaler

first = Scaler()  # expect: deprecated-amp
second = amp.GradScaler(enabled=True)  # expect: deprecated-amp
third = th.cuda.amp.GradScaler(init_scale=2.0**10)  # expect: deprecated-amp
fourth = torch.cpu.amp.GradScaler()  # expect: deprecated-amp


def forward(net, x):
    with autocast():  # expect: deprecated-amp
        x = net(x)
    with torch.cuda.amp.autocast(enabled=False):  # expect: deprecated-amp
        return net(x)


@autocast(True)  # expect: deprecated-amp
def decorated(net, x):
    return net(x)


class Function(torch.autograd.Function):
    @staticmethod
    @custom_fwd  # expect: deprecated-amp
    def forward(ctx, x):
        return x

    @staticmethod
    @custom_bwd  # expect: deprecated-amp
    def backward(ctx, grad):
        return grad


# Right.


def annotated(scaler: Scaler | None, other: "torch.cuda.amp.GradScaler") -> Scaler | None:
    return scaler


def by_version(version):
    return torch.amp.GradScaler("cuda") if version >= (2, 4) else torch.cuda.amp.GradScaler()


def by_branch():
    if hasattr(torch, "amp"):
        return torch.amp.autocast("cuda")
    else:
        return torch.cuda.amp.autocast()


try:
    new = torch.amp.GradScaler("cuda")
except (AttributeError, TypeError):
    new = torch.cuda.amp.GradScaler()

ok = torch.amp.GradScaler("cuda")
with torch.autocast("cuda"), torch.amp.autocast("cpu"):
    pass
