import torch


class WrongTrainer:
    def __init__(self, net, optimizer, criterion, every=4):
        self.net, self.optimizer, self.criterion, self.every = net, optimizer, criterion, every
        self.scaler = torch.amp.GradScaler("cuda")

    def _apply(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def epoch(self, loader):
        self.net.train()
        for number, (x, y) in enumerate(loader, 1):
            loss = self.criterion(self.net(x), y)
            self.scaler.scale(loss).backward()  # expect: loss-not-divided
            if number % self.every == 0:  # expect: last-group-not-stepped
                self._apply()


class RightTrainer:
    def __init__(self, net, optimizer, criterion, every=4):
        self.net, self.optimizer, self.criterion, self.every = net, optimizer, criterion, every

    def apply_gradients(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def epoch(self, loader):
        self.net.train()
        for number, (x, y) in enumerate(loader, 1):
            loss = self.criterion(self.net(x), y)
            (loss / self.every).backward()
            if number % self.every == 0 or number == len(loader):
                self.apply_gradients()
