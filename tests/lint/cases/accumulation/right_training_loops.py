import torch
from torch import nn
import torch.nn.functional as F


def sam(model, loader, optimizer):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.first_step(zero_grad=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.second_step(zero_grad=True)


def tbptt(model, data, opt, k):
    h = None
    for t in range(0, len(data) - k, k):
        opt.zero_grad()
        out, h = model(data[t:t + k], h)
        h = h.detach()
        loss = F.mse_loss(out, data[t + 1:t + k + 1])
        loss.backward()
        opt.step()


def tbptt_accumulated(model, seq, opt, k):
    h = None
    loss = 0
    for t, x in enumerate(seq):
        out, h = model(x, h)
        loss = loss + F.mse_loss(out, x)
        if (t + 1) % k == 0:
            opt.zero_grad()
            loss.backward()
            opt.step()
            h = h.detach()
            loss = 0


def ppo(policy, opt, buffer, epochs):
    for _ in range(epochs):
        for mb in buffer.minibatches():
            ratio = policy.ratio(mb)
            loss = -(ratio * mb.adv).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            opt.step()


def wgan(G, D, opt_G, opt_D, loader, n_critic):
    for i, real in enumerate(loader):
        opt_D.zero_grad()
        loss_D = -D(real).mean() + D(G(real)).mean()
        loss_D.backward()
        opt_D.step()
        for p in D.parameters():
            p.data.clamp_(-0.01, 0.01)
        if i % n_critic == 0:
            opt_G.zero_grad()
            loss_G = -D(G(real)).mean()
            loss_G.backward()
            opt_G.step()


def alternating(model, loader, opt_a, opt_b):
    for i, (x, y) in enumerate(loader):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if i % 2 == 0:
            opt_a.step()
        else:
            opt_b.step()


def lookahead(model, loader, opt, slow, k):
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
        if i % k == 0:
            slow.sync()


def per_sample(model, xs, ys, opt):
    opt.zero_grad()
    for x, y in zip(xs, ys):
        loss = F.cross_entropy(model(x[None]), y[None]) / len(xs)
        loss.backward()
    opt.step()


def full_gradient(model, loader, opt, n):
    opt.zero_grad()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, reduction="sum") / n
        loss.backward()
    opt.step()


def multi_task(model, tasks, opt):
    for batches in zip(*tasks):
        opt.zero_grad()
        for x, y in batches:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
        opt.step()


def maml(model, tasks, opt):
    for task in tasks:
        opt.zero_grad()
        learner = model.clone()
        for x, y in task.support:
            learner.adapt(F.mse_loss(learner(x), y))
        F.mse_loss(learner(task.x), task.y).backward()
        opt.step()


def amp_eval(model, loader, scaler, opt):
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = F.cross_entropy(model(x), y)
        opt.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            scaler.step(opt)
        scaler.update()


def no_sync(model, loader, opt, k, scaler):
    n = len(loader)
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % k == 0 or i + 1 == n
        if not last:
            with model.no_sync():
                with torch.autocast("cuda"):
                    loss = F.cross_entropy(model(x), y) / k
                scaler.scale(loss).backward()
        else:
            with torch.autocast("cuda"):
                loss = F.cross_entropy(model(x), y) / k
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()


def grad_scaler_disabled(model, loader, opt, dtype):
    scaler = torch.amp.GradScaler("cuda", enabled=(dtype == torch.float16))
    for x, y in loader:
        with torch.autocast("cuda", dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()


def timing(model, opt, x):
    for _ in range(3):
        model(x).sum().backward()
        opt.zero_grad()


def frozen_backbone(backbone, head, loader):
    backbone.half().eval()
    opt = torch.optim.Adam(head.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        opt.zero_grad()
        with torch.no_grad():
            f = backbone(x.half())
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(head(f), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
