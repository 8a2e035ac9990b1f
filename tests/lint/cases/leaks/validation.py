import torch
import torch.nn.functional as F
from tqdm import tqdm


def wrong_validate(model, loader):
    total = 0
    for x, y in loader:  # expect: validation-with-grad, validation-without-eval
        total += F.cross_entropy(model(x), y).item()
    return total / len(loader)


def wrong_counting(net, batches):
    net.eval()
    right = 0
    for x, y in tqdm(batches):  # expect: validation-with-grad
        right += (net(x).argmax(1) == y).sum().item()
    net.train()
    return right


def wrong_in_epoch(model, train_loader, val_loader, optimizer, epochs):
    for _ in range(epochs):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        correct = 0
        with torch.no_grad():
            for x, y in val_loader:  # expect: validation-without-eval
                correct += (model(x).argmax(1) == y).sum().item()
        print(correct)


class Trainer:
    def __init__(self, net, loaders):
        self.net, self.loaders = net, loaders

    @torch.inference_mode()
    def score(self):
        right = 0
        for x, y in self.loaders["valid"]:  # expect: validation-without-eval
            right += (self.net(x).argmax(1) == y).sum().item()
        return right


def wrong_single(model, image):
    model.eval()
    return model(image[None]).softmax(1)[0]  # expect: validation-with-grad


@torch.no_grad()
def right_validate(model, loader):
    model.eval()
    total = 0
    for x, y in loader:
        total += F.cross_entropy(model(x), y).item()
    model.train()
    return total / len(loader)


def right_block(model, test_loader):
    model.train(False)
    with torch.inference_mode():
        return [model(x).argmax(1) for x, _ in test_loader]


def right_switched(model, loader, is_train):
    model.train(is_train)
    with torch.set_grad_enabled(is_train):
        for x, _ in loader:
            model(x)


def accuracy(model, eval_loader):
    correct = 0
    for x, y in eval_loader:
        correct += (model(x).argmax(1) == y).sum().item()
    return correct


def right_caller(model, eval_loader):
    model.eval()
    with torch.no_grad():
        return accuracy(model, eval_loader)


def right_attack(model, test_loader, epsilon):
    model.eval()
    for x, y in test_loader:
        x.requires_grad_(True)
        loss = F.nll_loss(model(x), y)
        gradient, = torch.autograd.grad(loss, x)
        yield x + epsilon * gradient.sign()


class Detector(torch.nn.Module):
    def __init__(self, backbone, head):
        super().__init__()
        self.backbone, self.head = backbone, head

    def predict(self, levels):
        return [self.head(self.backbone(level)) for level in levels]


def update_statistics(model, loader):
    model.train()
    with torch.no_grad():
        for x, _ in loader:
            model(x)
