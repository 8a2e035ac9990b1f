import torch
import torch.nn.functional as F


class WrongZeroInForward:
    def __init__(self, net, adam, every):
        self.net, self.adam, self.every = net, adam, every
        self.seen = 0

    def compute(self, image, label):
        self.adam.zero_grad()  # expect: grad-zeroed-while-accumulating
        return F.cross_entropy(self.net(image), label) / self.every

    def fit(self, loader):
        for image, label in loader:
            self.compute(image, label).backward()
            self.seen += 1
            if self.seen % self.every == 0:
                self.adam.step()


class RightZeroInUpdate:
    def __init__(self, net, adam, every):
        self.net, self.adam, self.every = net, adam, every
        self.seen = 0

    def update(self):
        self.adam.step()
        self.adam.zero_grad()

    def fit(self, loader):
        for image, label in loader:
            (F.cross_entropy(self.net(image), label) / self.every).backward()
            self.seen += 1
            if self.seen % self.every == 0:
                self.update()


def wrong_gradients_set_to_none(net, optimizer, loader, parts):
    for index, (image, label) in enumerate(loader):
        for weight in net.parameters():
            weight.grad = None  # expect: grad-zeroed-while-accumulating
        (F.cross_entropy(net(image), label) / parts).backward()
        if (index + 1) % parts == 0 or index + 1 == len(loader):
            optimizer.step()


def right_gradients_set_to_none(net, optimizer, loader, parts):
    for index, (image, label) in enumerate(loader):
        (F.cross_entropy(net(image), label) / parts).backward()
        if (index + 1) % parts == 0 or index + 1 == len(loader):
            optimizer.step()
            for weight in net.parameters():
                weight.grad = None


def limit(net):
    torch.nn.utils.clip_grad_norm_(net.parameters(), 2.0)


def wrong_clip_by_function(net, optimizer, loader, scaler):
    for image, label in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(net(image), label)
        scaler.scale(loss).backward()
        limit(net)  # expect: clip-without-unscale
        scaler.step(optimizer)
        scaler.update()


def right_clip_by_function(net, optimizer, loader, scaler):
    for image, label in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(net(image), label)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        limit(net)
        scaler.step(optimizer)
        scaler.update()


def wrong_schedule_by_methods(net, o, warmup, loader):
    for index, (image, label) in enumerate(loader):
        (F.cross_entropy(net(image), label) / 4).backward()
        if (index + 1) % 4 == 0 or index + 1 == len(loader):
            o.step()
            o.zero_grad()
        warmup.step()  # expect: scheduler-per-micro-batch


CONFIG = {"parts": 4}


def right_size_in_settings(net, optimizer, loader):
    for index, (image, label) in enumerate(loader):
        loss = F.cross_entropy(net(image), label)
        loss = loss / CONFIG["parts"]
        loss.backward()
        if (index + 1) % CONFIG["parts"] == 0 or index + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
