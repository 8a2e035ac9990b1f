import torch
import torch.nn.functional as F


def learn(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def wrong_function_in_block(net, optimizer, loader):
    for image, label in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(image), label)
            learn(loss, optimizer)  # expect: backward-in-autocast


def right_function_behind_block(net, optimizer, loader):
    for image, label in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(image), label)
        learn(loss, optimizer)
