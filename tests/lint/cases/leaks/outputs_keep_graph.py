from collections import defaultdict, deque

import torch
import torch.nn as nn
import torch.nn.functional as F


def wrong_list(model, loader, optimizer):
    all_preds, targets = [], []
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        pred = model(x)
        loss = F.cross_entropy(pred, y)
        loss.backward()
        optimizer.step()
        all_preds.append(pred)  # expect: outputs-keep-graph
        targets.append(y)
    return torch.cat(all_preds), torch.cat(targets)


def wrong_scores(net, dl, opt, crit):
    collected = {"scores": [], "labels": []}
    for img, lbl in dl:
        out = net(img)
        loss = crit(out, lbl)
        opt.zero_grad()
        loss.backward()
        opt.step()
        collected["scores"].append(torch.sigmoid(out).cpu())  # expect: outputs-keep-graph
        collected["labels"].append(lbl)
    return collected


def wrong_dict(encoder, loader, optimizer, contrastive_loss):
    bank = {}
    for i, (a, b) in enumerate(loader):
        za, zb = encoder(a), encoder(b)
        loss = contrastive_loss(za, zb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bank[i] = za  # expect: outputs-keep-graph
    return bank


class Trainer:
    def __init__(self, net, opt, crit):
        self.net, self.opt, self.crit = net, opt, crit
        self.outputs = defaultdict(list)
        self.features = []
        self.latest = deque(maxlen=4)

    def epoch(self, number, loader):
        self.net.train()
        for x, y in loader:
            self.opt.zero_grad()
            out = self.net(x)
            loss = self.crit(out, y)
            loss.backward()
            self.opt.step()
            self.outputs[number].append((out, y))  # expect: outputs-keep-graph
            self.features.append(out.detach())
            self.latest.append(out)

    def right_list_per_step(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            self.features = []
            for part in x.chunk(2):
                self.features.append(self.net(part))
            loss = self.crit(torch.cat(self.features), y)
            loss.backward()
            self.opt.step()


def wrong_validation(model, val_loader):
    model.eval()
    outs = []
    for batch, _ in val_loader:  # expect: validation-with-grad
        outs.append(model(batch).cpu())  # expect: outputs-keep-graph
    model.train()
    return torch.cat(outs)


class Recorder:
    def __init__(self, model):
        self.model = model
        self.maps = []
        model.layer4.register_forward_hook(self.keep)

    def keep(self, module, inputs, output):
        self.maps.append(output)  # expect: outputs-keep-graph

    def record(self, images):
        for image in images:
            self.model(image)
        return self.maps


def right(model, loader, optimizer):
    preds, hits, wrong = [], 0, []
    for x, y in loader:
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        preds.append(logits.argmax(1))
        _, top = torch.max(logits, 1)
        preds.append(top)
        wrong += [(top != y).float().mean()]
        hits += (logits.argmax(1) == y).sum()
        preds.extend(logits.detach().cpu().tolist())
        probabilities = logits.softmax(1).detach()
        preds.append(probabilities)
    return preds, hits


@torch.no_grad()
def right_without_graph(model, test_loader):
    model.eval()
    outs = []
    for x, _ in test_loader:
        outs.append(model(x))
    return torch.cat(outs)


class Pyramid(nn.Module):
    def __init__(self, backbone, layers):
        super().__init__()
        self.backbone, self.layers = backbone, nn.ModuleList(layers)

    def forward(self, x):
        features = []
        x = self.backbone(x)
        for layer in self.layers:
            x = layer(x)
            features.append(x)
        return features
