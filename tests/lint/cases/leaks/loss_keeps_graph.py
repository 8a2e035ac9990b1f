import numpy as np
import torch
import torch.nn.functional as F


def wrong_sum(model, loader, criterion, optimizer):
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss  # expect: loss-keeps-graph
    return total


def wrong_sum_with_weight(net, dl, crit, opt, scaler):
    stats = {"loss": 0.0, "n": 0}
    for img, lbl in dl:
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cuda"):
            objective = crit(net(img), lbl)
        scaler.scale(objective).backward()
        scaler.step(opt)
        scaler.update()
        stats["loss"] += objective * img.size(0)  # expect: loss-keeps-graph
        stats["n"] += img.size(0)
    return stats


def wrong_plain_assignment(model, loader, optimizer):
    epoch_loss = torch.zeros(())
    for x, y in loader:
        optimizer.zero_grad()
        l = F.mse_loss(model(x), y)
        l.backward()
        optimizer.step()
        epoch_loss = epoch_loss + l  # expect: loss-keeps-graph
    return epoch_loss.item() / len(loader)


def wrong_on_the_cpu(model, loader, optimizer, history):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        history["train"].append(loss.cpu())  # expect: loss-keeps-graph
        history["log"].append({"step": len(history["log"]), "loss": loss})  # expect: loss-keeps-graph


def wrong_parts(model, loader, optimizer, box_loss_fn, class_loss_fn):
    box_total = class_total = 0
    for x, (boxes, labels) in loader:
        optimizer.zero_grad()
        pred_boxes, logits = model(x)
        box_loss = box_loss_fn(pred_boxes, boxes)
        cls_loss = class_loss_fn(logits, labels)
        loss = box_loss + 0.5 * cls_loss
        loss.backward()
        optimizer.step()
        box_total += box_loss  # expect: loss-keeps-graph
        class_total += cls_loss.item()
    return box_total, class_total


def wrong_huggingface(model, train_dataloader, accelerator, optimizer):
    total_loss = 0
    for batch in train_dataloader:
        outputs = model(**batch)
        accelerator.backward(outputs.loss)
        optimizer.step()
        optimizer.zero_grad()
        total_loss += outputs.loss  # expect: loss-keeps-graph
    return total_loss


def step(model, x, y, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def wrong_function_returns_the_loss(model, loader, optimizer):
    losses = []
    for x, y in loader:
        losses.append(step(model, x, y, optimizer))  # expect: loss-keeps-graph
    return sum(losses) / len(losses)


class Trainer:
    def __init__(self, net, opt):
        self.net, self.opt = net, opt
        self.running = 0.0
        self.history = []

    def epoch(self, loader):
        for i, (x, y) in enumerate(loader):
            self.opt.zero_grad()
            loss = F.cross_entropy(self.net(x), y)
            loss.backward()
            self.opt.step()
            self.running += loss / len(loader)  # expect: loss-keeps-graph
            self.history += [loss]  # expect: loss-keeps-graph

    def epoch_without_mistakes(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            loss = F.cross_entropy(self.net(x), y)
            loss.backward()
            self.opt.step()
            self.running += loss.detach() / len(loader)
            self.history += [loss.item()]
            self.last = loss


class StepByStep:
    def __init__(self, net, opt):
        self.net, self.opt = net, opt
        self.total, self.graph_total = 0, 0

    def step(self, x, y):
        self.opt.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.opt.step()
        self.graph_total += loss  # expect: loss-keeps-graph
        self.total += loss.item()
        parts = []
        parts.append(loss)
        return parts


def wrong_validation(net, val_dl, crit):
    net.eval()
    val_loss = 0
    for x, y in val_dl:  # expect: validation-with-grad
        val_loss += crit(net(x), y)  # expect: loss-keeps-graph
    net.train()
    return val_loss / len(val_dl)


def right(model, loader, criterion, optimizer):
    total, history, values = 0, [], []
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        total += float(loss)
        history.append(loss.detach())
        values.append(loss.data.cpu())
        values.append(loss.detach().cpu().numpy())
    return total, history, np.mean(values)


def right_replaced_after_backward(model, loader, criterion, optimizer, reduce):
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        loss = reduce(loss)
        total += loss
    return total


def right_under_no_grad(model, loader, criterion, optimizer):
    total = torch.zeros(())
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            total += loss
    return total


def sum_of_parts_is_differentiated(model, loader, parts, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        total_loss = 0
        for part in parts:
            total_loss += part(output, y)
        total_loss.backward()
        optimizer.step()


def list_is_differentiated(model, loader, parts, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        losses = []
        for part in parts:
            losses.append(part(output, y))
        loss = torch.stack(losses).mean()
        loss.backward()
        optimizer.step()


def reinforce(policy, env, optimizer, episodes):
    for _ in range(episodes):
        log_probs, rewards = [], []
        state, done = env.reset(), False
        while not done:
            probs = policy(state)
            distribution = torch.distributions.Categorical(probs)
            action = distribution.sample()
            log_probs.append(distribution.log_prob(action))
            state, reward, done = env.step(action)
            rewards.append(reward)
        optimizer.zero_grad()
        policy_loss = -(torch.stack(log_probs) * sum(rewards)).sum()
        policy_loss.backward()
        optimizer.step()


def compute_loss(model, views, target):
    loss = 0
    for view in views:
        loss += F.cross_entropy(model(view), target)
    return loss


class Meter:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value.detach().item())


def meter_keeps_numbers(model, loader, criterion, optimizer):
    meter = Meter()
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        meter.add(loss)
    return meter
