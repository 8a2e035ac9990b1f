import torch
import torch.nn.functional as F


def learn(network, optimizer, image, label):
    optimizer.zero_grad()
    F.cross_entropy(network(image), label).backward()
    optimizer.step()


def add_gradients(network, image, label):
    (F.cross_entropy(network(image), label) / 2).backward()


def wrong_step_per_half(network, optimizer, loader):
    for image, label in loader:
        has_failed = False
        try:
            learn(network, optimizer, image, label)
        except torch.OutOfMemoryError:
            has_failed = True
        if has_failed:
            learn(network, optimizer, image[::2], label[::2])  # expect: halved-without-accumulation
            learn(network, optimizer, image[1::2], label[1::2])


def right_one_step(network, optimizer, loader):
    for image, label in loader:
        has_failed = False
        try:
            learn(network, optimizer, image, label)
        except torch.OutOfMemoryError:
            has_failed = True
        if has_failed:
            optimizer.zero_grad()
            add_gradients(network, image[::2], label[::2])
            add_gradients(network, image[1::2], label[1::2])
            optimizer.step()


def wrong_smaller_training(train, bs):
    has_failed = False
    try:
        train(bs)
    except torch.OutOfMemoryError:
        has_failed = True
    if has_failed:
        train(bs // 2)  # expect: halved-without-accumulation
