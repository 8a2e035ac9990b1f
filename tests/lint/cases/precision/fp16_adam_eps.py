import torch
from torch import nn, optim
from transformers import AutoModelForCausalLM


def default(net):
    net = net.cuda().half()
    return optim.AdamW(net.parameters(), lr=1e-4)  # expect: fp16-adam-eps


def written(name):
    lm = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16).cuda()
    return torch.optim.Adam(lm.parameters(), lr=1e-5, eps=1e-8)  # expect: fp16-adam-eps


def filtered():
    model = nn.Linear(4, 4).to(dtype=torch.half)
    params = [p for p in model.parameters() if p.requires_grad]
    return optim.Adam(params, 1e-3)  # expect: fp16-adam-eps


def grouped(model):
    model.to(torch.float16)
    groups = [{"params": model.parameters(), "weight_decay": 0.1}]
    return torch.optim.RMSprop(groups, lr=1e-3)  # expect: fp16-adam-eps


# Right.


def larger(net):
    net = net.half()
    return optim.Adam(net.parameters(), lr=1e-4, eps=1e-4)


def float32(net):
    return optim.Adam(net.parameters(), lr=1e-4)


def sgd(net):
    net.half()
    return optim.SGD(net.parameters(), lr=1e-2)


def other(net, teacher):
    teacher.half()
    return optim.Adam(net.parameters(), lr=1e-4)


def back(net):
    net.half()
    net.float()
    return optim.Adam(net.parameters(), lr=1e-4)


def bfloat(net):
    net.to(torch.bfloat16)
    return optim.Adam(net.parameters(), lr=1e-4)
