import torch.nn.functional as F


def wrong_never_increased(net, optimizer, loader):
    pending = 0
    optimizer.zero_grad()
    for image, label in loader:
        (F.cross_entropy(net(image), label) / 6).backward()
        if pending == 6:  # expect: accumulation-counter
            optimizer.step()
            optimizer.zero_grad()
            pending = 0


def wrong_reset_in_loop(net, optimizer, loader, accumulate):
    for image, label in loader:
        pending = 0
        (F.cross_entropy(net(image), label) / accumulate).backward()
        pending += 1
        if pending == accumulate:  # expect: accumulation-counter
            optimizer.step()
            optimizer.zero_grad()


class WrongAttribute:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer
        self.pending = 0

    def one(self, image, label):
        (F.cross_entropy(self.net(image), label) / 6).backward()
        if self.pending >= 6:  # expect: accumulation-counter
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.pending = 0


class RightAttribute:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer
        self.pending = 0

    def one(self, image, label):
        (F.cross_entropy(self.net(image), label) / 6).backward()
        self.pending += 1
        if self.pending >= 6:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.pending = 0


def right_count(net, optimizer, stream):
    pending = 0
    for image, label in stream:
        (F.cross_entropy(net(image), label) / 6).backward()
        pending += 1
        if pending == 6:
            optimizer.step()
            optimizer.zero_grad()
            pending = 0
    if pending:
        optimizer.step()
        optimizer.zero_grad()
